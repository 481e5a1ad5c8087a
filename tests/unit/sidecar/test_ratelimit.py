"""Token buckets: what they let through, when they say to come back, and what they remember."""

import tracemalloc
from fractions import Fraction

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from modelservice_sidecar.core.ratelimit import MAX_SUBJECTS, Bucket, Buckets, Rules, ToolBuckets

pytestmark = pytest.mark.promise("limits")

SOON = 1e-6


class TokenBuckets(RuleBasedStateMachine):
    """Against the definition: a bucket holds tokens, each call takes one, they come back evenly."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.most = 3
        self.period = Fraction(6)
        self.buckets = Buckets(self.limits())
        self.tokens: dict[str, Fraction] = {}
        self.seen = Fraction(self.now)

    def limits(self) -> Rules:
        return Rules(shared=Bucket(max_tokens=self.most, period=float(self.period)))

    def refill(self) -> Fraction:
        """What the definition says is there now."""
        elapsed = Fraction(self.now) - self.seen
        self.seen = Fraction(self.now)
        full = Fraction(self.most)
        self.tokens["all"] = min(full, self.tokens.get("all", full) + elapsed * self.most / self.period)
        return self.tokens["all"]

    # Steps of a quarter second and these sizes meet no tie but exact ones.
    @rule(quarters=st.integers(0, 30))
    def time_passes(self, quarters: int) -> None:
        self.now += quarters / 4

    @rule()
    def a_call_comes(self) -> None:
        tokens = self.refill()
        refused = self.buckets.take("any", "nobody", self.now)
        if tokens >= 1:
            assert refused is None
            self.tokens["all"] -= 1
        else:
            assert refused is not None
            wait = (1 - tokens) * self.period / self.most
            assert refused.bucket == "shared"
            assert refused.retry_after == pytest.approx(float(wait), abs=0.0011)  # a millisecond early

    @precondition(lambda self: self.refill() < 1)
    @rule()
    def come_back_when_told(self) -> None:
        refused = self.buckets.take("any", "nobody", self.now)
        assert refused is not None
        early = self.now + refused.retry_after - SOON
        assert early < self.now or self.buckets.take("any", "nobody", early) is not None
        self.now += refused.retry_after + SOON
        assert self.buckets.take("any", "nobody", self.now) is None
        self.tokens["all"] = self.refill() - 1
        self.seen = Fraction(self.now)
        # The comparison went on by a moment that is no quarter; meet the definition again where both are full.
        self.now = float(int(self.now + float(self.period)) + 1)

    @rule()
    def the_same_rules_are_loaded_again(self) -> None:
        self.buckets.configure(self.limits(), self.now)

    @invariant()
    def nobody_is_remembered_for_a_shared_bucket(self) -> None:
        assert self.buckets.subjects == 0


TestTokenBuckets = TokenBuckets.TestCase


def test_users_do_not_take_each_other_s_tokens_and_share_what_is_shared() -> None:
    buckets = Buckets(
        Rules(per_user=Bucket(max_tokens=2, period=60), shared=Bucket(max_tokens=3, period=60)),
    )
    assert [buckets.take("t", user, 0.0) for user in ("a", "a", "b")] == [None] * 3
    last = buckets.take("t", "b", 0.0)
    assert last is not None
    assert (last.bucket, last.retry_after) == ("shared", pytest.approx(20.0, abs=0.002))
    own = buckets.take("t", "a", 20.1)
    assert own is not None
    assert (own.bucket, own.retry_after) == ("per_user", pytest.approx(9.9, abs=0.002))
    assert buckets.take("t", "b", 20.1) is None


def test_a_call_that_is_refused_by_one_bucket_takes_nothing_from_the_others() -> None:
    buckets = Buckets(
        Rules(
            shared=Bucket(max_tokens=2, period=10),
            tools={"heavy": ToolBuckets(shared=Bucket(max_tokens=1, period=1000))},
        )
    )
    assert buckets.take("heavy", "a", 0.0) is None
    for _ in range(50):
        refused = buckets.take("heavy", "a", 0.0)
        assert refused is not None
        assert refused.bucket == "tool_shared"
    assert buckets.take("light", "a", 0.0) is None


def test_a_tool_has_buckets_of_its_own_per_user_and_shared() -> None:
    rules = Rules(tools={"heavy": ToolBuckets(per_user=Bucket(max_tokens=1, period=60))})
    buckets = Buckets(rules)
    assert buckets.take("heavy", "a", 0.0) is None
    refused = buckets.take("heavy", "a", 0.0)
    assert refused is not None
    assert refused.bucket == "tool_per_user"
    assert buckets.take("heavy", "b", 0.0) is None
    assert [buckets.take("light", "a", 0.0) for _ in range(100)] == [None] * 100
    assert buckets.subjects == 2


@pytest.mark.parametrize(
    ("changed", "wait"),
    [
        (Bucket(max_tokens=60, period=60), 1.0),
        (Bucket(max_tokens=600, period=60), 0.1),
        (Bucket(max_tokens=6, period=60), 10.0),
        # No longer than an empty bucket of the new size takes.
        (Bucket(max_tokens=60, period=6), 0.1),
    ],
)
def test_a_new_configuration_refills_nothing(changed: Bucket, wait: float) -> None:
    buckets = Buckets(Rules(per_user=Bucket(max_tokens=60, period=60)))
    assert [buckets.take("t", "a", 100.0) for _ in range(60)] == [None] * 60
    buckets.configure(Rules(per_user=changed), 100.0)
    refused = buckets.take("t", "a", 100.0)
    assert refused is not None
    assert refused.retry_after == pytest.approx(wait, rel=0.02)
    assert buckets.take("t", "a", 100.0 + wait + SOON) is None


def test_ten_thousand_users_take_less_than_ten_megabytes() -> None:
    buckets = Buckets(Rules(per_user=Bucket(max_tokens=60, period=3600)))
    tracemalloc.start()
    try:
        for number in range(10_000):
            user = f"https://issuer.example/realms/one\nsystem:serviceaccount:namespace-{number}:client-{number}"
            assert buckets.take("t", user, float(number)) is None
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert buckets.subjects == 10_000
    assert size < 10_000_000


def test_the_number_of_remembered_users_is_bounded_and_the_longest_unused_go_first() -> None:
    buckets = Buckets(Rules(per_user=Bucket(max_tokens=1, period=1e9)), max_subjects=100)
    assert buckets.take("t", "steady", 0.0) is None
    for number in range(5_000):
        assert buckets.take("t", f"user-{number}", float(number)) is None
        assert buckets.take("t", "steady", float(number)) is not None
        assert buckets.subjects <= 100
    assert buckets.take("t", "user-4999", 5_000.0) is not None
    assert MAX_SUBJECTS >= 10_000


def test_full_buckets_are_forgotten_first() -> None:
    buckets = Buckets(Rules(per_user=Bucket(max_tokens=10, period=10)), max_subjects=10)
    for number in range(11):
        buckets.take("t", f"early-{number}", 0.0)
    for number in range(8):
        buckets.take("t", f"late-{number}", 100.0)
    buckets.take("t", "last", 100.0)
    assert buckets.subjects <= 10
    spent = [buckets.take("t", "late-0", 100.0) for _ in range(10)]
    assert spent[:9] == [None] * 9
    assert spent[9] is not None


def test_a_burst_of_every_size_is_let_through_whole() -> None:
    for most in range(1, 200):
        for period in (0.1, 1.0, 7.0, 60.0, 3600.0):
            buckets = Buckets(Rules(shared=Bucket(max_tokens=most, period=period)))
            taken = [buckets.take("t", "", 123456.789) for _ in range(most + 1)]
            assert taken[:most] == [None] * most, (most, period)
            assert taken[most] is not None, (most, period)
