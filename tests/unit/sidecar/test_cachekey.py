"""Which calls are the same call, and the bounded store of answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from modelservice_sidecar.core import cachekey
from modelservice_sidecar.core.cachekey import Store
from modelservice_sidecar.core.tensors import Tensor

pytestmark = pytest.mark.promise("limits")

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
ARGUMENTS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), JSON, max_size=4)


def key(arguments: dict[str, object], *, tool: str = "t", version: str = "1", **more: object) -> bytes | None:
    return cachekey.key(tool, arguments, version=version, **more)  # type: ignore[arg-type]


def shuffled(value: object) -> object:
    """The same JSON value with the members of every object the other way round."""
    if isinstance(value, dict):
        return {name: shuffled(member) for name, member in reversed(value.items())}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


def exact(value: object) -> object:
    """A form that is equal only for the same JSON text: Python's 1, 1.0 and True are equal."""
    if isinstance(value, dict):
        return {name: exact(member) for name, member in value.items()}
    if isinstance(value, list):
        return [exact(item) for item in value]
    return (type(value).__name__, repr(value))


@given(one=ARGUMENTS, other=ARGUMENTS)
def test_two_calls_share_a_key_only_if_their_arguments_are_the_same_json(
    one: dict[str, object], other: dict[str, object]
) -> None:
    assert (key(one) == key(other)) is (exact(one) == exact(other))
    assert key(one) == key(shuffled(one))  # type: ignore[arg-type]


def test_tool_version_scope_and_form_of_the_answer_are_part_of_the_key() -> None:
    keys = [
        key({"a": 1}),
        key({"a": 1}, tool="u"),
        key({"a": 1}, version="2"),
        key({"a": 1}, scope="issuer\nsomebody"),
        key({"a": 1}, wants_tensors=True),
        key({"a": 1.0}),
        key({"a": True}),
        key({"a": "1"}),
        key({"a": [1]}),
    ]
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_tensors_count_with_datatype_shape_and_every_byte() -> None:
    data = bytes(range(24))
    tensors = [
        Tensor(datatype="FP32", shape=(2, 3), data=data),
        Tensor(datatype="FP32", shape=(3, 2), data=data),
        Tensor(datatype="INT32", shape=(2, 3), data=data),
        Tensor(datatype="FP32", shape=(2, 3), data=data[:-1] + b"\xff"),
    ]
    keys = [key({"x": tensor}) for tensor in tensors]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    assert key({"x": Tensor(datatype="FP32", shape=(2, 3), data=memoryview(bytearray(data)))}) == keys[0]


@pytest.mark.parametrize("value", [2**64, "\ud800", object(), {1: 2}])
def test_what_has_no_canonical_form_has_no_key(value: object) -> None:
    assert key({"x": value}) is None


class AnyUse(RuleBasedStateMachine):
    """Against a plain dictionary that never forgets."""

    def __init__(self) -> None:
        super().__init__()
        self.store: Store[str] = Store(max_bytes=100, ttl=10.0)
        self.put_at: dict[bytes, tuple[str, int, float]] = {}
        self.now = 0.0
        self.count = 0

    @rule(tenths=st.integers(0, 60))
    def time_passes(self, tenths: int) -> None:
        self.now += tenths / 10

    @rule(number=st.integers(0, 12), size=st.integers(1, 130))
    def put(self, number: int, size: int) -> None:
        self.count += 1
        value = f"value {self.count}"
        self.store.put(b"%d" % number, value, size, self.now)
        self.put_at[b"%d" % number] = (value, size, self.now)
        kept = self.store.get(b"%d" % number, self.now)
        assert kept == (value if size <= 100 else None)

    @rule(number=st.integers(0, 12))
    def get(self, number: int) -> None:
        found = self.store.get(b"%d" % number, self.now)
        if found is not None:
            value, _, at = self.put_at[b"%d" % number]
            assert found == value
            assert self.now - at < 10.0

    @rule()
    def clear(self) -> None:
        self.store.clear()
        assert all(self.store.get(b"%d" % number, self.now) is None for number in range(13))

    @invariant()
    def bytes_are_bounded_and_counted_right(self) -> None:
        assert 0 <= self.store.size <= 100
        assert self.store.size == sum(entry.size for entry in self.store._entries.values())


TestAnyUse = AnyUse.TestCase


def test_the_least_recently_used_goes_first() -> None:
    store: Store[int] = Store(max_bytes=30, ttl=10.0)
    for number in range(3):
        store.put(b"%d" % number, number, 10, 0.0)
    assert store.get(b"0", 1.0) == 0
    store.put(b"3", 3, 10, 1.0)
    assert [store.get(b"%d" % number, 1.0) for number in range(4)] == [0, None, 2, 3]
    assert store.evicted == 1
