"""Which model may use which device: what a list of devices may be, and when two lists collide.

Owns those rules. Pure. CUDA itself cuts a list at the first entry it does not like and then shows fewer devices without a word,
so what it would cut is refused here. Whether a device exists only the model's own process can tell.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """What one model asks for. `devices` is a list as CUDA_VISIBLE_DEVICES has it; empty is none."""

    model: str
    devices: str
    shared: bool = False
    memory_fraction: float | None = None


def problem(assignments: Sequence[Assignment]) -> str | None:
    """What is wrong with these assignments together: a sentence, or `None`."""
    lists: list[tuple[Assignment, list[str]]] = []
    for assignment in assignments:
        names = [name.strip() for name in assignment.devices.split(",")] if assignment.devices.strip() else []
        wrong = _list_problem(names)
        if wrong is not None:
            return f"The devices {assignment.devices!r} of {assignment.model} {wrong}."
        if assignment.memory_fraction is not None and not names:
            return f"{assignment.model} has a memoryFraction but no device; name its device, or leave the fraction out."
        lists.append((assignment, names))
    for number, (one, names) in enumerate(lists):
        for other, others in lists[number + 1 :]:
            wrong = _collision(one, names, other, others)
            if wrong is not None:
                return wrong
    return _overfull(lists)


def _list_problem(names: Sequence[str]) -> str | None:
    if not names:
        return None
    if len(set(names)) < len(names):
        return "name one device twice, and CUDA would show none; name each once"
    kinds = {_kind(name) for name in names}
    if "" in kinds:
        wrong = next(name for name in names if not _kind(name))
        return f"hold {wrong!r}; a device is an index from 0, a GPU-… or a MIG-… UUID"
    if len(kinds) > 1:
        return "mix indices and UUIDs, and CUDA would show only the first ones; use one kind"
    if kinds == {"MIG"} and len(names) > 1:
        return "name several MIG devices, and a process can use only one; name one"
    return None


def _collision(one: Assignment, names: Sequence[str], other: Assignment, others: Sequence[str]) -> str | None:
    if not names or not others or (one.shared and other.shared):
        return None
    pair = f"{one.model} and {other.model}"
    kinds = {_kind(names[0]), _kind(others[0])}
    if "index" in kinds and len(kinds) > 1:
        return (
            f"{pair} name devices by index and by UUID, which may be one device; use one kind, or set shared for both."
        )
    for name in names:
        for also in others:
            if _same(name, also):
                return f"{pair} are both assigned to device {name}; give each its own, or set shared for both."
    return None


def _overfull(lists: Sequence[tuple[Assignment, Sequence[str]]]) -> str | None:
    total: dict[str, float] = {}
    for assignment, names in lists:
        for name in names:
            total[name] = total.get(name, 0.0) + (assignment.memory_fraction or 0.0)
            if total[name] > 1.0 + 1e-9:
                return f"The memoryFractions of the models on device {name} add up to {total[name]:g}; at most 1 can be given."
    return None


def _same(one: str, other: str) -> bool:
    """UUIDs may be shortened as long as they are clear."""
    if _kind(one) == "index":
        return int(one) == int(other) if _kind(other) == "index" else False
    return one.startswith(other) or other.startswith(one)


def _kind(name: str) -> str:
    if name.isascii() and name.isdigit():
        return "index"
    for prefix in ("GPU", "MIG"):
        if name.startswith(f"{prefix}-") and len(name) > len(prefix) + 1:
            return prefix
    return ""
