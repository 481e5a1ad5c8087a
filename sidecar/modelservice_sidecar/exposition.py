"""The adapter's metrics as Prometheus reads them, in its text format or in OpenMetrics, which has exemplars.

Owns the wording of families and the choice of the format. prometheus_client's types and writers do the formatting. Imported
with the first scrape and run in a thread, since neither is free.
"""

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, Exemplar, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from modelservice_sidecar.metrics import Counter, Family, Gauge, Histogram, Info, Series, State


def render(families: Sequence[Family], accept: str) -> tuple[bytes, str]:
    """Every family, and the media type that was chosen by the Accept header."""
    encode, content_type = choose_encoder(accept)
    return encode(_Families(families)), content_type


class _Families(Collector):
    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return map(_metric, self._families)


def _metric(family: Family) -> Metric:
    match family:
        case Counter():
            counter = CounterMetricFamily(family.name, family.description, labels=family.labels)
            for labels, count in list(family.values.items()):
                counter.add_metric(labels, count)
            return counter
        case Histogram():
            histogram = HistogramMetricFamily(family.name, family.description, labels=family.labels)
            for labels, series in list(family.series.items()):
                histogram.add_metric(labels, _buckets(series), series.total)
            return histogram
        case Gauge():
            return GaugeMetricFamily(family.name, family.description, value=family.read())
        case State():
            states = GaugeMetricFamily(family.name, family.description, labels=family.labels)
            current = family.read()
            for word in family.words:
                states.add_metric((word,), float(word == current))
            return states
        case Info():
            info = GaugeMetricFamily(family.name, family.description, labels=family.labels)
            info.add_metric(family.read(), 1.0)
            return info


def _buckets(series: Series) -> list[tuple[str, float] | tuple[str, float, Exemplar]]:
    bounds = [*map(str, series.bounds), "+Inf"]
    exemplars = series.exemplars or [None] * len(bounds)
    return [
        (bound, count)
        if found is None
        else (bound, count, Exemplar({"trace_id": found.trace_id}, found.value, found.at))
        for bound, count, found in zip(bounds, map(float, series.cumulative()), exemplars, strict=True)
    ]
