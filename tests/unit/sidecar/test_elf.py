"""Reading shared libraries: what this interpreter's own libraries need, and files that lie about themselves."""

import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelservice_sidecar.core import elf


def a_library() -> bytes:
    """Some extension module of the standard library, or of a package: a shared library linked against glibc."""
    import orjson

    return next(Path(orjson.__file__).parent.glob("*.so")).read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="needs a shared library of this system")
def test_a_real_library_tells_its_processor_and_the_glibc_it_needs() -> None:
    import platform

    library = elf.read(a_library())
    assert library.machine == platform.machine()
    assert any(name.startswith("libc.so") for name in library.needed)
    assert (2, 0) < library.glibc < (3, 0)
    assert any(name.startswith("Py") for name in library.undefined)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no shared library"),
        (b"\x7fEL", "is no shared library"),
        (b"\x7fELF\x01\x01" + bytes(100), "64-bit"),
        (b"\x7fELF\x02\x02" + bytes(100), "64-bit"),
        (b"\x7fELF\x02\x01" + bytes(10) + struct.pack("<HH", 2, 0x3E) + bytes(100), "no shared library"),
        (b"\x7fELF\x02\x01" + bytes(10) + struct.pack("<HH", 3, 0x3E), "cut off"),
    ],
)
def test_what_is_no_library_is_told(content: bytes, said: str) -> None:
    with pytest.raises(elf.NotElfError, match=said):
        elf.read(content)


@settings(max_examples=200)
@given(st.data())
def test_no_damage_makes_anything_but_a_result_or_a_refusal(data: st.DataObject) -> None:
    content = bytearray(a_library()[:4096] + a_library()[-4096:])
    struct.pack_into("<Q", content, 40, data.draw(st.integers(0, 9000)))
    for _ in range(data.draw(st.integers(1, 20))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        elf.read(bytes(content))
    except elf.NotElfError:
        return


@pytest.mark.parametrize(("text", "numbers"), [("2.34", (2, 34)), ("0.27.0.post1", (0, 27, 0)), ("", ()), ("x.1", ())])
def test_versions_are_compared_as_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert elf.version_of(text) == numbers
