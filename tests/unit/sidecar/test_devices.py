"""The table of device assignments: what CUDA would cut or share in silence is refused in words."""

import pytest

from modelservice_sidecar.core.devices import Assignment, problem


@pytest.mark.parametrize("devices", ["", "0", "1,0", "GPU-1a2b", "GPU-1,GPU-2", "MIG-1a2b"])
def test_a_list_that_cuda_would_take_whole_is_accepted(devices: str) -> None:
    assert problem([Assignment(model="m", devices=devices)]) is None


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ("0,0", "name one device twice"),
        ("GPU-a,GPU-a", "name one device twice"),
        ("0,GPU-x", "mix indices and UUIDs"),
        ("MIG-a,GPU-b", "mix indices and UUIDs"),
        ("MIG-a,MIG-b", "several MIG devices"),
        ("-1", "'-1'"),
        ("1,-1,2", "'-1'"),
        ("none", "'none'"),
        ("0,", "''"),
        ("GPU-", "'GPU-'"),
        ("٠", "'٠'"),
    ],
)
def test_a_list_that_cuda_would_cut_is_refused(devices: str, said: str) -> None:
    told = problem([Assignment(model="m", devices=devices)])
    assert told is not None
    assert said in told
    assert "of m" in told


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("0", "0", "device 0"),
        ("0,1", "1,2", "device 1"),
        ("GPU-abc", "GPU-abcdef", "device GPU-abc"),
        ("0", "GPU-a", "by index and by UUID"),
    ],
)
def test_two_models_on_one_device_must_both_say_that_they_share(one: str, other: str, said: str) -> None:
    def assigned(*, first: bool, second: bool) -> str | None:
        return problem(
            [
                Assignment(model="m", devices=one, shared=first),
                Assignment(model="n", devices=other, shared=second),
            ]
        )

    for told in (assigned(first=False, second=False), assigned(first=True, second=False)):
        assert told is not None
        assert said in told
        assert "m and n" in told
    assert assigned(first=True, second=True) is None


@pytest.mark.parametrize(("one", "other"), [("", ""), ("", "0"), ("0", "1"), ("GPU-a", "GPU-b")])
def test_models_that_cannot_meet_are_accepted(one: str, other: str) -> None:
    assert problem([Assignment(model="m", devices=one), Assignment(model="n", devices=other)]) is None


def test_memory_is_given_once() -> None:
    def fractions(one: float, other: float) -> str | None:
        return problem(
            [
                Assignment(model="m", devices="0", shared=True, memory_fraction=one),
                Assignment(model="n", devices="0", shared=True, memory_fraction=other),
            ]
        )

    assert fractions(0.5, 0.5) is None
    assert "add up to 1.1" in (fractions(0.5, 0.6) or "")
    assert "no device" in (problem([Assignment(model="m", devices="", memory_fraction=0.5)]) or "")
