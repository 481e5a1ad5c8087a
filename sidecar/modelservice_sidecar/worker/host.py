"""The machine and the interpreter that this runs in, for comparison with what compiled code needs.

Owns the reading of the facts. Needs only Python. In a worker it describes the worker's interpreter.
"""

import platform
from importlib import metadata
from pathlib import Path

from modelservice_sidecar.core.native import Host


def describe() -> Host:
    """This machine with this interpreter."""
    name, version = platform.libc_ver()
    return Host(
        machine=platform.machine(),
        glibc=version if name == "glibc" else "",
        flags=cpu_flags(),
        tvm=_version("apache-tvm"),
        tvm_ffi=_version("apache-tvm-ffi"),
    )


def cpu_flags() -> frozenset[str]:
    """The kernel's words for what the CPU can do; none where there is no /proc/cpuinfo."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            return frozenset(value.split())
    return frozenset()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
