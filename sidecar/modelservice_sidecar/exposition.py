"""The adapter's metrics as Prometheus reads them.

Owns the families: their names, labels and texts. Imported with the first scrape and run in a thread, since neither is free.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from modelservice_sidecar.telemetry import Telemetry


def render(telemetry: Telemetry) -> bytes:
    """Every family in Prometheus' text format."""
    return generate_latest(_Families(telemetry))


class _Families(Collector):
    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def collect(self) -> Iterator[Metric]:
        seen = self._telemetry
        calls = CounterMetricFamily("modelservice_calls", "Tool calls by outcome.", labels=("tool", "outcome", "era"))
        for key, count in list(seen.calls.items()):
            calls.add_metric(key, count)
        yield calls
        rejections = CounterMetricFamily(
            "modelservice_rejections", "Requests refused before they became a call.", labels=("reason",)
        )
        for reason, count in list(seen.rejections.items()):
            rejections.add_metric((reason,), count)
        yield rejections
        checks = CounterMetricFamily(
            "modelservice_auth", "Requests by what came of the look at their token.", labels=("outcome",)
        )
        for outcome, count in list(seen.auth.items()):
            checks.add_metric((outcome,), count)
        yield checks
        duration = HistogramMetricFamily(
            "mcp_server_operation_duration_seconds",
            "Time from a call's last byte to its answer.",
            labels=("mcp_method_name", "gen_ai_tool_name"),
        )
        for tool, timings in list(seen.duration.items()):
            duration.add_metric(("tools/call", tool), timings.cumulative(), timings.total)
        yield duration
        backend = HistogramMetricFamily(
            "modelservice_backend_duration_seconds", "Time that the model server took.", labels=("tool",)
        )
        for tool, timings in list(seen.backend.items()):
            backend.add_metric((tool,), timings.cumulative(), timings.total)
        yield backend
        tokens = CounterMetricFamily(
            "modelservice_tokens", "Tokens that language models read and wrote.", labels=("tool", "type")
        )
        for kind, count in list(seen.tokens.items()):
            tokens.add_metric(kind, count)
        yield tokens
        for name, (description, read) in list(seen.gauges.items()):
            yield GaugeMetricFamily(name, description, value=read())
        yield from _of_stages(seen)


def _of_stages(seen: Telemetry) -> Iterator[Metric]:
    for name, counter in list(seen.counters.items()):
        counted = CounterMetricFamily(name, counter.description, labels=counter.labels)
        for labels, count in list(counter.values.items()):
            counted.add_metric(labels, count)
        yield counted
    for name, (description, histogram) in list(seen.histograms.items()):
        yield HistogramMetricFamily(name, description, buckets=histogram.cumulative(), sum_value=histogram.total)
    for name, state_set in list(seen.states.items()):
        states = GaugeMetricFamily(name, state_set.description, labels=("state",))
        current = state_set.read()
        for state in state_set.states:
            states.add_metric((state,), float(state == current))
        yield states
