"""What a shared library says about the machine and the libraries that it needs (ELF, System V ABI).

Owns the reading. Pure: bytes in, values out, nothing is loaded or run. Needs only Python, for workers read with it too. A file
that lies about its own layout is no ELF file; no read goes beyond its bytes.
"""

import struct
from dataclasses import dataclass
from typing import Final

MACHINES: Final = {0x3E: "x86_64", 0xB7: "aarch64", 0x03: "i686", 0x28: "armv7l", 0xF3: "riscv64", 0x15: "ppc64le"}
"""`e_machine` as `uname -m` words it."""

_MAX_ENTRIES: Final = 100_000
_MAX_NAME: Final = 65_536
_SHARED: Final = 3
_DYNSYM, _VERNEED, _DYNAMIC = 11, 0x6FFFFFFE, 6
_DT_NEEDED: Final = 1

Bytes = bytes | memoryview


class NotElfError(Exception):
    """The bytes are no shared library that this machine's kind could load."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedLibrary:
    """`needed`: libraries by name. `versions`: names such as `GLIBC_2.34`. `undefined`: symbols that others must bring."""

    machine: str
    needed: tuple[str, ...]
    versions: tuple[str, ...]
    undefined: tuple[str, ...]

    @property
    def glibc(self) -> tuple[int, ...]:
        """The newest glibc that is asked for; empty where none is."""
        found = [version_of(name.removeprefix("GLIBC_")) for name in self.versions if name.startswith("GLIBC_")]
        return max(found, default=())


@dataclass(frozen=True, kw_only=True, slots=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int
    info: int
    entry: int


def read(data: Bytes) -> SharedLibrary:
    """Read a 64-bit little-endian shared library.

    Raises:
        NotElfError: it is none.
    """
    try:
        return _read(data)
    except (struct.error, IndexError, OverflowError, UnicodeDecodeError) as error:
        raise NotElfError("is cut off or damaged") from error


def version_of(text: str) -> tuple[int, ...]:
    """`2.34` as numbers; what is no number ends it."""
    numbers: list[int] = []
    for part in text.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _read(data: Bytes) -> SharedLibrary:
    if bytes(data[:4]) != b"\x7fELF":
        raise NotElfError("is no shared library")
    if data[4] != 2 or data[5] != 1:
        raise NotElfError("is no 64-bit little-endian library")
    kind, machine = struct.unpack_from("<HH", data, 16)
    if kind != _SHARED:
        raise NotElfError("is an ELF file, but no shared library")
    (table,) = struct.unpack_from("<Q", data, 40)
    entry_size, count = struct.unpack_from("<HH", data, 58)
    sections = [_section(data, table + number * entry_size) for number in range(count)]
    needed: list[str] = []
    versions: list[str] = []
    undefined: list[str] = []
    for section in sections:
        if section.kind not in {_DYNSYM, _VERNEED, _DYNAMIC}:
            continue
        names = sections[section.link]
        if section.kind == _DYNAMIC:
            needed += _needed(data, section, names)
        elif section.kind == _VERNEED:
            versions += _versions(data, section, names)
        else:
            undefined += _undefined(data, section, names)
    return SharedLibrary(
        machine=MACHINES.get(machine, f"machine {machine}"),
        needed=tuple(needed),
        versions=tuple(sorted(set(versions))),
        undefined=tuple(undefined),
    )


def _section(data: Bytes, at: int) -> _Section:
    _, kind, _, _, offset, size, link, info, _, entry = struct.unpack_from("<IIQQQQIIQQ", data, at)
    return _Section(kind=kind, offset=offset, size=size, link=link, info=info, entry=entry)


def _needed(data: Bytes, section: _Section, names: _Section) -> list[str]:
    found: list[str] = []
    for number in range(min(section.size // 16, _MAX_ENTRIES)):
        tag, value = struct.unpack_from("<qQ", data, section.offset + number * 16)
        if tag == 0:
            break
        if tag == _DT_NEEDED:
            found.append(_name(data, names, value))
    return found


def _versions(data: Bytes, section: _Section, names: _Section) -> list[str]:
    found: list[str] = []
    at = section.offset
    for _ in range(min(section.info, _MAX_ENTRIES)):
        _, count, _, first, following = struct.unpack_from("<HHIII", data, at)
        entry = at + first
        for _ in range(min(count, _MAX_ENTRIES - len(found))):
            _, _, _, name, step = struct.unpack_from("<IHHII", data, entry)
            found.append(_name(data, names, name))
            entry += step
        if not following:
            break
        at += following
    return found


def _undefined(data: Bytes, section: _Section, names: _Section) -> list[str]:
    found: list[str] = []
    for number in range(1, min(section.size // 24, _MAX_ENTRIES)):
        name, info, _, where, _, _ = struct.unpack_from("<IBBHQQ", data, section.offset + number * 24)
        if where == 0 and info >> 4 == 1:  # global; weak ones may be missing
            found.append(_name(data, names, name))
    return found


def _name(data: Bytes, names: _Section, offset: int) -> str:
    start = names.offset + offset
    end = start
    while data[end]:
        end += 1
        if end - start > _MAX_NAME:
            raise NotElfError("is damaged: it has a name without an end")
    return bytes(data[start:end]).decode("ascii")
