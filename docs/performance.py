"""Writes the figures of docs/explanation/performance.md and its plot from the published results of benchmarks.

Owns what stands between the two marks of that page, and `calls.svg` beside the results. Results are published by hand, after a
run on a quiet machine: `--publish` copies them from build/bench. Run by `make generate`; `--check` writes nothing and fails
where the page or the plot is old.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "build" / "bench"
PUBLISHED = REPOSITORY / "docs" / "explanation" / "performance"
PAGE = PUBLISHED.with_suffix(".md")
PLOT = PUBLISHED / "calls.svg"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"

BENCHMARKS = {
    "adapter-chain": "a tool call with everything on",
    "adapter-memory": "memory with everything on",
    "adapter-rss": "memory with the defaults",
    "adapter-start": "the start",
    "adapter-auth": "tokens",
    "adapter-scrape": "a scrape of 200 tools' metrics under load",
    "adapter-overload": "three times as many calls as the model server takes",
    "batcher": "joining calls for a model server without a batcher of its own",
}
"""What the page tells of, in this order."""
PANELS = (
    ("c16_calls_per_s", "calls per second, 16 connections (longer is better)"),
    ("c16_cpu_us", "CPU per call in µs, 16 connections (shorter is better)"),
    ("c1_p50_us", "median latency in µs, one connection (shorter is better)"),
)
OURS, NOT_A_SERVER = "adapter", "direct"
COLUMNS = (
    ("c1_p50_us", "p50, 1, µs"),
    ("c1_p99_us", "p99, 1, µs"),
    *((f"c{number}_{key}", f"{name}, {number}") for number in (16, 64) for key, name in (
        ("calls_per_s", "calls/s"), ("p99_us", "p99, µs"), ("cpu_us", "CPU, µs"),
    )),
)  # fmt: skip

Result = Mapping[str, Any]


def read(folder: Path) -> dict[str, Result]:
    """The published results by benchmark."""
    files = {name: folder / f"{name}.json" for name in BENCHMARKS}
    return {name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items() if file.is_file()}


def figures(results: Mapping[str, Result]) -> str:
    """What stands between the marks."""
    return "\n\n".join(_parts(results))


def _parts(results: Mapping[str, Result]) -> Iterator[str]:
    if chain := results.get("adapter-chain"):
        yield "![Calls per second, CPU per call and latency of each subject](performance/calls.svg)"
        rows = [
            [f"`{name}`", *(_number(values.get(key)) for key, _ in COLUMNS)]
            for name, values in chain["compared"].items()
        ]
        yield _table(["subject", *(title for _, title in COLUMNS)], rows)
    for name, what in BENCHMARKS.items():
        if result := results.get(name):
            quiet = "" if result["quiet"] else " The machine was not quiet; these figures are not to be trusted."
            yield f"### {what[0].upper()}{what[1:]}"
            yield f"`{name}`, {_rounds(result['rounds'])}, {result['machine']}.{quiet}"
            yield _table(["metric", "measured", "goal", "kept"], [_metric(metric) for metric in result["metrics"]])
    missing = [f"`{name}` ({what})" for name, what in BENCHMARKS.items() if name not in results]
    if missing:
        yield f"Not yet measured on a quiet machine, so nothing is claimed: {', '.join(missing)}."


def _rounds(number: int) -> str:
    return f"{number} round" if number == 1 else f"medians over {number} rounds"


def _metric(metric: Mapping[str, Any]) -> list[str]:
    value, goal = metric["value"], metric["goal"]
    lower = metric["better"] == "lower"
    if goal is None:
        wanted = kept = ""
    else:
        wanted = f"{'≤' if lower else '≥'} {_number(goal)}"
        kept = "yes" if (value <= goal if lower else value >= goal) else "**no**"
    return [f"`{metric['metric']}`", f"{_number(value)} {metric['unit']}", wanted, kept]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def plot(chain: Result) -> str:
    """Horizontal bars, one panel a quantity; the model server itself is left out, since it does no work of a server."""
    subjects = [name for name in chain["compared"] if name != NOT_A_SERVER]
    line, left, width, gap = 22, 130, 440, 46
    height = len(PANELS) * (len(subjects) * line + gap)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="700" height="{height}" fill="#ffffff"/>',
    ]
    top = 0
    for key, title in PANELS:
        drawn.append(f'<text x="10" y="{top + 26}" font-weight="bold">{escape(title)}</text>')
        top += gap - 8
        most = max(chain["compared"][name][key] for name in subjects)
        for name in subjects:
            value = chain["compared"][name][key]
            length = max(1.0, value / most * width)
            colour = "#1f6feb" if name == OURS else "#9aa4b2"
            drawn += [
                f'<text x="{left - 8}" y="{top + 15}" text-anchor="end">{escape(name)}</text>',
                f'<rect x="{left}" y="{top + 3}" width="{length:.1f}" height="{line - 6}" fill="{colour}"/>',
                f'<text x="{left + length + 6:.1f}" y="{top + 15}">{_number(value)}</text>',
            ]
            top += line
        top += 8
    return "\n".join([*drawn, "</svg>\n"])


def written(page: str, results: Mapping[str, Result]) -> dict[Path, str]:
    """The files as they have to be."""
    before, _, rest = page.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"docs/performance.py: {PAGE.name} lacks the marks {BEGIN} and {END}")
    files = {PAGE: f"{before}{BEGIN}\n\n{figures(results)}\n\n{END}{after}"}
    if chain := results.get("adapter-chain"):
        files[PLOT] = plot(chain)
    return files


def publish(names: list[str]) -> int:
    """Copy results of real runs; 1 if one is not there."""
    PUBLISHED.mkdir(exist_ok=True)
    for name in names or BENCHMARKS:
        found = RESULTS / f"{name}.json"
        if found.is_file() and name in BENCHMARKS:
            shutil.copyfile(found, PUBLISHED / found.name)
        elif names:
            sys.stderr.write(f"docs/performance.py: there is no result {name} for this page in build/bench\n")
            return 1
    return 0


def main(arguments: list[str]) -> int:
    """Write the page and the plot, or look whether they are as they have to be."""
    parser = argparse.ArgumentParser(description="Figures of docs/explanation/performance.md.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file is old")
    parser.add_argument("--publish", nargs="*", metavar="NAME", help="first take these results (all) from build/bench")
    options = parser.parse_args(arguments)
    if options.publish is not None and publish(options.publish):
        return 1
    files = written(PAGE.read_text(encoding="utf-8"), read(PUBLISHED))
    old = [path for path, text in files.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if options.check:
        for path in old:
            sys.stderr.write(f"{path.relative_to(REPOSITORY)} is old; run: make generate\n")
        return 1 if old else 0
    for path in old:
        path.write_text(files[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
