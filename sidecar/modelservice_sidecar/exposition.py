"""The adapter's metrics as Prometheus reads them: its text format, or OpenMetrics, which has exemplars.

Owns the writing of both formats. Of our own, because a scrape must not move the time of calls: for two hundred tools
prometheus_client writes for a tenth of a second, and its parsers, which tests hold this to, for longer. Runs in a thread and
lets the loop go first every few series.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Final

from modelservice_sidecar.metrics import Counter, Exemplar, Family, Gauge, Histogram, Info, Labels, Series, State

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_TURN: Final = 16
"""Series between two moments in which the loop goes first: about a tenth of a millisecond."""
_PAUSE: Final = 0.00005
"""Longer than nothing: on one core, a thread that only gives the interpreter away takes it back before another can wake."""


def render(families: Sequence[Family], *, open_metrics: bool) -> bytes:
    """Every family in one of the formats."""
    parts: list[str] = []
    for family in families:
        counts = isinstance(family, Counter)
        name = f"{family.name}_total" if counts and not open_metrics else family.name
        parts.append(f"# HELP {name} {_help(family.description, open_metrics)}\n# TYPE {name} {family.kind}\n")
        for number, lines in enumerate(_lines(family, open_metrics)):
            parts.append(lines)
            if number % _TURN == _TURN - 1:
                time.sleep(_PAUSE)
    if open_metrics:
        parts.append("# EOF\n")
    return "".join(parts).encode()


def _lines(family: Family, open_metrics: bool) -> Iterator[str]:
    """The samples of a family, those of one series at a time."""
    match family:
        case Counter():
            for values, count in list(family.values.items()):
                yield f"{family.name}_total{_braced(family.labels, values)} {float(count)}\n"
        case Histogram():
            for values, series in list(family.series.items()):
                yield _histogram(family, values, series, open_metrics)
        case Gauge():
            yield f"{family.name} {float(family.read())}\n"
        case State():
            current = family.read()
            for word in family.words:
                yield f"{family.name}{_braced(family.labels, (word,))} {float(word == current)}\n"
        case Info():
            yield f"{family.name}{_braced(family.labels, family.read())} 1.0\n"


def _histogram(family: Histogram, values: Labels, series: Series, open_metrics: bool) -> str:
    # One escaping for all buckets: `\0` stands where the bound goes, and in no label.
    before, after = _braced((*family.labels, "le"), (*values, "\0")).split("\0")
    before, after = f"{family.name}_bucket{before}", f"{after} "
    bounds, counts, total = [*map(str, family.bounds), "+Inf"], series.cumulative(), series.total
    shown = series.exemplars if open_metrics else None
    if shown is None:
        lines = [f"{before}{bound}{after}{count}.0\n" for bound, count in zip(bounds, counts, strict=True)]
    else:
        lines = [
            f"{before}{bound}{after}{count}.0{_exemplar(exemplar)}\n"
            for bound, count, exemplar in zip(bounds, counts, shown, strict=True)
        ]
    labels = _braced(family.labels, values)
    lines.append(f"{family.name}_count{labels} {counts[-1]}.0\n{family.name}_sum{labels} {total}\n")
    return "".join(lines)


def _exemplar(exemplar: Exemplar | None) -> str:
    if exemplar is None:
        return ""
    return f' # {{trace_id="{exemplar.trace_id}"}} {exemplar.value} {exemplar.at:.3f}'


def _braced(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    return "{" + ",".join(f'{name}="{_value(value)}"' for name, value in sorted(zip(names, values, strict=True))) + "}"


def _value(text: str) -> str:
    if text.isidentifier():
        return text
    return _help(text, quotes=True)


def _help(text: str, quotes: bool) -> str:
    """Texts after HELP keep their quotation marks in the older format."""
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quotes else escaped
