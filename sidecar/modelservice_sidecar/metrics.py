"""Counters, histograms and gauges as the loop writes them: a call pays a dictionary entry and a bisection for each.

Owns the shapes and what a label may be. prometheus_client's own take a lock for every bucket and search their labels anew with
each call. Here the loop alone writes and the rendering thread reads, so nothing is locked: a scrape may see a call in one
family and not yet in another. Values of labels are published tool names and words from the code, never from a request.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

Labels = tuple[str, ...]

DURATIONS: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Bounds in seconds: those that OpenTelemetry names for MCP, and finer ones below, where an adapter's own time is seen."""


class Exemplar(NamedTuple):
    """One observation of a bucket and the trace that it belongs to. `at` is seconds since the epoch."""

    trace_id: str
    value: float
    at: float


class Counter:
    """Goes up only. Its name is shown with `_total`."""

    kind: Final = "counter"
    __slots__ = ("description", "labels", "name", "values")

    def __init__(self, name: str, description: str, labels: Labels = ()) -> None:
        self.name = name
        self.description = description
        self.labels = labels
        self.values: dict[Labels, float] = {}

    def add(self, *labels: str, count: float = 1) -> None:
        """Count what has these labels, in the order of the family's."""
        self.values[labels] = self.values.get(labels, 0) + count


class Series:
    """One histogram of a family. `exemplars` has the newest recorded trace of each bucket, where there is one."""

    __slots__ = ("bounds", "counts", "exemplars", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.exemplars: list[Exemplar | None] | None = None
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value into its bucket."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def exemplify(self, exemplar: Exemplar) -> None:
        """Keep a trace as the example of the bucket that its value is in."""
        if self.exemplars is None:
            self.exemplars = [None] * len(self.counts)
        self.exemplars[bisect_left(self.bounds, exemplar.value)] = exemplar

    def cumulative(self) -> list[int]:
        """Prometheus' buckets: how many values were at most so large."""
        return list(accumulate(self.counts))


class Histogram:
    """How values are spread, by labels."""

    kind: Final = "histogram"
    __slots__ = ("bounds", "description", "labels", "name", "series")

    def __init__(self, name: str, description: str, bounds: Sequence[float] = DURATIONS, labels: Labels = ()) -> None:
        self.name = name
        self.description = description
        self.labels = labels
        self.bounds = tuple(map(float, bounds))
        self.series: dict[Labels, Series] = {}

    def of(self, *labels: str) -> Series:
        """The series with these labels, in the order of the family's."""
        found = self.series.get(labels)
        if found is None:
            found = self.series[labels] = Series(self.bounds)
        return found

    def observe(self, value: float, *labels: str) -> None:
        """Count a value into its bucket."""
        self.of(*labels).observe(value)


class Gauge:
    """A figure that is read when it is scraped."""

    kind: Final = "gauge"
    labels: Final[Labels] = ()
    __slots__ = ("description", "name", "read")

    def __init__(self, name: str, description: str, read: Callable[[], float]) -> None:
        self.name = name
        self.description = description
        self.read = read


class State:
    """One of few words, as a gauge for each of them: 1 for the word that holds, 0 for the others."""

    kind: Final = "gauge"
    labels: Final[Labels] = ("state",)
    __slots__ = ("description", "name", "read", "words")

    def __init__(self, name: str, description: str, words: Sequence[str], read: Callable[[], str]) -> None:
        self.name = name
        self.description = description
        self.words = tuple(words)
        self.read = read


class Info:
    """Words that do not change while they hold, as labels of a gauge that is 1."""

    kind: Final = "gauge"
    __slots__ = ("description", "labels", "name", "read")

    def __init__(self, name: str, description: str, labels: Labels, read: Callable[[], Labels]) -> None:
        self.name = name
        self.description = description
        self.labels = labels
        self.read = read


Family = Counter | Histogram | Gauge | State | Info
