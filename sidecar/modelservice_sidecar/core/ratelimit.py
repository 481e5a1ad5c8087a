"""Token buckets: how many calls per time a user, a tool and the whole service may make.

Owns the arithmetic, the bound on remembered users, and which buckets a call draws from. Pure: the time is passed in, on a clock
that never steps. A bucket is kept as one number, the moment at which it is full again; a bucket that is full is not kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

BucketName = Literal["per_user", "shared", "tool_per_user", "tool_shared"]

MAX_SUBJECTS: Final = 20_000
"""Buckets of users that are remembered; beyond it those go that were not used for longest. About 4 MB."""

_TIE: Final = 0.01
_LONGEST_TIE: Final = 0.001
"""What sums of rounded intervals may be off, and how early a token may be there: a hundredth of its interval, at most a
millisecond."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """`max_tokens` calls at once; empty, it is full again after `period` seconds."""

    max_tokens: int
    period: float

    @property
    def interval(self) -> float:
        """Seconds in which one token comes back."""
        return self.period / self.max_tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolBuckets:
    """What one tool has besides the buckets for all tools."""

    per_user: Bucket | None = None
    shared: Bucket | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """Every bucket there is; `tools` by published name."""

    per_user: Bucket | None = None
    shared: Bucket | None = None
    tools: Mapping[str, ToolBuckets] = field(default_factory=dict)

    def of(self, tool: str) -> tuple["Draw", ...]:
        """The buckets that a call of this tool draws from."""
        own = self.tools.get(tool, ToolBuckets())
        found: tuple[tuple[BucketName, str, Bucket | None], ...] = (
            ("per_user", "", self.per_user),
            ("shared", "", self.shared),
            ("tool_per_user", tool, own.per_user),
            ("tool_shared", tool, own.shared),
        )
        return tuple(_draw(name, scope, bucket) for name, scope, bucket in found if bucket is not None)


class Draw(NamedTuple):
    """One bucket of a call, ready to be counted. `most` is how far ahead "full again" may lie for a token to be there."""

    name: BucketName
    per_user: bool
    scope: str
    interval: float
    most: float


class Refused(NamedTuple):
    """No token was there; in `retry_after` seconds there is one."""

    bucket: BucketName
    retry_after: float


class Buckets:
    """The state of all buckets of one adapter. It outlives changes of the rules: a new configuration refills nothing."""

    def __init__(self, rules: Rules, *, max_subjects: int = MAX_SUBJECTS) -> None:
        self._rules = rules
        self._max = max_subjects
        self._draws: dict[str, tuple[Draw, ...]] = {}
        # By scope and user, least recently used first; and by scope.
        self._users: dict[tuple[str, str], float] = {}
        self._shared: dict[str, float] = {}

    @property
    def subjects(self) -> int:
        """How many buckets of users are remembered."""
        return len(self._users)

    def configure(self, rules: Rules, now: float) -> None:
        """Other rules from now on. What was taken stays taken, at most for the new bucket's whole period."""
        if rules == self._rules:
            return
        self._rules = rules
        self._draws = {}
        for (scope, user), full_at in self._users.items():
            self._users[scope, user] = min(full_at, now + self._period(scope, per_user=True))
        for scope, full_at in self._shared.items():
            self._shared[scope] = min(full_at, now + self._period(scope, per_user=False))

    def draws(self, tool: str) -> tuple[Draw, ...]:
        """The buckets of a published tool."""
        found = self._draws.get(tool)
        if found is None:
            found = self._draws[tool] = self._rules.of(tool)
        return found

    def take(self, tool: str, user: str, now: float) -> Refused | None:
        """Take a token from every bucket of the call, or none at all."""
        draws = self.draws(tool)
        refused = self._missing(draws, user, now)
        if refused is not None:
            self._remember(draws, user)
            return refused
        for _, per_user, scope, interval, _ in draws:
            if per_user:
                key = (scope, user)
                self._users[key] = max(self._users.pop(key, 0.0), now) + interval
            else:
                self._shared[scope] = max(self._shared.get(scope, 0.0), now) + interval
        if len(self._users) > self._max:
            self._forget(now)
        return None

    def _missing(self, draws: Sequence[Draw], user: str, now: float) -> Refused | None:
        """The bucket that lets the call wait longest."""
        refused = None
        longest = 0.0
        for name, per_user, scope, _, most in draws:
            full_at = self._users.get((scope, user), 0.0) if per_user else self._shared.get(scope, 0.0)
            over = full_at - now - most
            if over > longest:
                longest = over
                refused = Refused(name, over)
        return refused

    def _remember(self, draws: Sequence[Draw], user: str) -> None:
        """Who is refused and keeps asking must not be forgotten, and so refilled, for it."""
        for draw in draws:
            full_at = self._users.pop((draw.scope, user), None) if draw.per_user else None
            if full_at is not None:
                self._users[draw.scope, user] = full_at

    def _period(self, scope: str, *, per_user: bool) -> float:
        """How long the bucket takes to be full again; nothing where there is none any more."""
        rules = self._rules if not scope else self._rules.tools.get(scope, ToolBuckets())
        bucket = rules.per_user if per_user else rules.shared
        return 0.0 if bucket is None else bucket.period

    def _forget(self, now: float) -> None:
        """Those that are full again cost nothing to forget; if they are not enough, the least recently used go too."""
        while self._users and (len(self._users) > self._max or next(iter(self._users.values())) <= now):
            del self._users[next(iter(self._users))]


def _draw(name: BucketName, scope: str, bucket: Bucket) -> Draw:
    most = bucket.period - bucket.interval + min(bucket.interval * _TIE, _LONGEST_TIE)
    return Draw(name, name in {"per_user", "tool_per_user"}, scope, bucket.interval, most)
