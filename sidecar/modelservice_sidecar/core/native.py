"""Whether compiled code can run on a machine: what it was made for beside what is there, row by row.

Owns the comparison and its words. Pure, and needs only Python: the command and the workers ask the same questions. Without this
a wrong machine is a crash (an illegal instruction, a missing symbol) that says nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from modelservice_sidecar.core.elf import SharedLibrary, version_of

FLAGS: Final[dict[str, str]] = {
    # LLVM's names of instruction sets, and the kernel's in /proc/cpuinfo. Others describe speed, or come with these.
    "sse3": "pni",
    "ssse3": "ssse3",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "popcnt": "popcnt",
    "cx16": "cx16",
    "sahf": "lahf_lm",
    "avx": "avx",
    "avx2": "avx2",
    "bmi": "bmi1",
    "bmi2": "bmi2",
    "f16c": "f16c",
    "fma": "fma",
    "lzcnt": "abm",
    "movbe": "movbe",
    "xsave": "xsave",
    "aes": "aes",
    "pclmul": "pclmulqdq",
    "vaes": "vaes",
    "vpclmulqdq": "vpclmulqdq",
    "gfni": "gfni",
    "sha": "sha_ni",
    "avxvnni": "avx_vnni",
    "avx512f": "avx512f",
    "avx512bw": "avx512bw",
    "avx512cd": "avx512cd",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512ifma": "avx512ifma",
    "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "amx-tile": "amx_tile",
    "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16",
    "neon": "asimd",
    "dotprod": "asimddp",
    "fullfp16": "asimdhp",
    "lse": "atomics",
    "crc": "crc32",
    "i8mm": "i8mm",
    "bf16": "bf16",
    "sve": "sve",
    "sve2": "sve2",
    "sme": "sme",
}

_SAME_PROCESSOR: Final = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """A machine with an interpreter. Empty values are unknown or absent. `flags` are the kernel's words for what a CPU can."""

    machine: str
    glibc: str
    flags: frozenset[str]
    tvm: str
    tvm_ffi: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """What is recorded beside the code about how it was made. Empty values are unknown."""

    mcpu: str = ""
    features: tuple[str, ...] = ()
    tvm: str = ""
    tvm_ffi: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One comparison. `advice` is the rest of a sentence, where it does not fit."""

    what: str
    needed: str
    found: str
    advice: str = ""

    @property
    def fits(self) -> bool:
        return not self.advice


def made_of(document: dict[str, Any] | None) -> Made:
    """What a signature file records; nothing where there is none."""
    recorded: Any = (document or {}).get("made")
    if not isinstance(recorded, dict):
        return Made()
    features = recorded.get("features", [])
    return Made(
        mcpu=str(recorded.get("mcpu", "")),
        features=tuple(str(name) for name in features) if isinstance(features, list) else (),
        tvm=str(recorded.get("tvm", "")),
        tvm_ffi=str(recorded.get("tvmFfi", "")),
    )


def compare(library: SharedLibrary, made: Made, host: Host) -> list[Row]:
    """Every comparison, those that fit too."""
    machine = _SAME_PROCESSOR.get(host.machine.lower(), host.machine)
    return [
        Row(
            what="processor",
            needed=library.machine,
            found=machine,
            advice="" if library.machine == machine else "build it for this processor",
        ),
        _glibc(library, host),
        _features(made, host),
        _version("TVM", made.tvm, host.tvm, "apache-tvm"),
        _version("TVM FFI", made.tvm_ffi, host.tvm_ffi, "apache-tvm-ffi"),
    ]


def sentence(name: str, rows: Sequence[Row]) -> str:
    """What does not fit, as one sentence; empty where all does."""
    wrong = [f"{row.what} {row.needed} is needed and {row.found} is here: {row.advice}" for row in rows if not row.fits]
    return f"{name} cannot run on this machine: {'; '.join(wrong)}." if wrong else ""


def _glibc(library: SharedLibrary, host: Host) -> Row:
    needed = ".".join(str(number) for number in library.glibc)
    advice = ""
    if needed and not host.glibc:
        advice = "use an image with glibc, which Alpine has not"
    elif needed and library.glibc > version_of(host.glibc):
        advice = "build it on an older system, or use a newer image"
    return Row(what="glibc", needed=needed or "any", found=host.glibc or "none", advice=advice)


def _features(made: Made, host: Host) -> Row:
    if not made.features or not host.flags:
        return Row(what="CPU features", needed=made.mcpu or "unknown", found="not compared")
    missing = sorted(name for name in made.features if name in FLAGS and FLAGS[name] not in host.flags)
    needed = made.mcpu or "those recorded"
    if not missing:
        return Row(what="CPU features", needed=needed, found="all of them")
    return Row(
        what="CPU features",
        needed=needed,
        found=f"a CPU without {', '.join(missing)}",
        advice="build it with a lower --mcpu, or choose other nodes",
    )


def _version(what: str, made: str, there: str, package: str) -> Row:
    if not there:
        return Row(
            what=what, needed=made or "any", found="none", advice=f"install {package}{f'=={made}' if made else ''}"
        )
    # Neither promises a stable ABI before 1.0: what changes with the second number may break.
    fits = not made or version_of(made)[:2] == version_of(there)[:2]
    advice = "" if fits else f"build it again with {package} {there}, or install {package}=={made}"
    return Row(what=what, needed=made or "unknown", found=there, advice=advice)
