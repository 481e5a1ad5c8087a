"""The comparison of compiled code with a machine, row by row."""

from dataclasses import replace

import pytest

from modelservice_sidecar.core import native
from modelservice_sidecar.core.elf import SharedLibrary
from modelservice_sidecar.core.native import Host, Made

LIBRARY = SharedLibrary(machine="x86_64", needed=("libc.so.6",), versions=("GLIBC_2.34", "GLIBC_2.4"), undefined=())
MADE = Made(mcpu="x86-64-v3", features=("avx2", "fma", "tuning-of-llvm"), tvm="0.27.0", tvm_ffi="0.1.15")
HOST = Host(machine="x86_64", glibc="2.36", flags=frozenset({"avx2", "fma"}), tvm="0.27.1", tvm_ffi="0.1.2")


def told(library: SharedLibrary = LIBRARY, made: Made = MADE, host: Host = HOST) -> str:
    return native.sentence("m.so", native.compare(library, made, host))


def test_what_fits_says_nothing() -> None:
    assert told() == ""
    assert told(host=replace(HOST, machine="AMD64")) == ""
    assert told(made=Made()) == ""


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (replace(HOST, machine="arm64"), "processor x86_64 is needed and aarch64 is here: build it for this processor"),
        (replace(HOST, glibc="2.31"), "glibc 2.34 is needed and 2.31 is here"),
        (replace(HOST, glibc="2.4"), "glibc 2.34 is needed and 2.4 is here"),
        (replace(HOST, glibc=""), "use an image with glibc"),
        (replace(HOST, flags=frozenset({"avx2"})), "CPU features x86-64-v3 is needed and a CPU without fma is here"),
        (replace(HOST, tvm="0.28.0"), "TVM 0.27.0 is needed and 0.28.0 is here"),
        (replace(HOST, tvm=""), "install apache-tvm==0.27.0"),
        (replace(HOST, tvm_ffi="0.2.0"), "TVM FFI 0.1.15 is needed and 0.2.0 is here"),
    ],
)
def test_what_does_not_fit_is_one_sentence_with_what_to_do(host: Host, said: str) -> None:
    sentence = told(host=host)
    assert said in sentence
    assert sentence.startswith("m.so cannot run on this machine: ")
    assert sentence.endswith(".")


def test_all_that_does_not_fit_is_said_at_once() -> None:
    sentence = told(host=replace(HOST, glibc="2.31", tvm="0.28.0"))
    assert "glibc" in sentence
    assert "TVM 0.27.0" in sentence


def test_flags_that_are_not_known_are_not_held_against_a_machine() -> None:
    assert told(host=replace(HOST, flags=frozenset())) == ""


@pytest.mark.parametrize("document", [None, {}, {"made": 1}, {"made": {"features": "avx2"}}])
def test_a_file_that_records_nothing_is_compared_by_what_the_code_tells(document: dict[str, object] | None) -> None:
    assert native.made_of(document).features == ()
