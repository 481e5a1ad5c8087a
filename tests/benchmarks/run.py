"""Runs benchmarks; each writes `build/bench/NAME.json` and prints it as a table and as one line of JSON.

Owns the command line and the files. A goal that is missed is said and is no failure: benchmarks measure, tests assert. A wrong
answer is a failure, for a figure about wrong answers is worse than none.

Usage: ``python tests/benchmarks/run.py [--quick] [NAME …]``; `make bench NAME=…`. `--quick` tries everything out in seconds.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from servicebench import machine
from servicebench.failure import BenchError
from servicebench.registry import BENCHMARKS
from servicebench.report import table

RESULTS = Path(__file__).resolve().parents[2] / "build" / "bench"


def main(arguments: list[str]) -> int:
    """Run the named benchmarks, or all; 0 if all of them measured something."""
    parser = argparse.ArgumentParser(prog="make bench", description="Benchmarks; results go to build/bench/.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="try it out; the figures mean nothing")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        print(f"bench: there is no {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    folder = RESULTS / "quick" if options.quick else RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    try:
        cores = machine.claim()
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    failed = False
    for name in options.names or BENCHMARKS:
        print(f"==> {name}", flush=True)
        try:
            report = BENCHMARKS[name](cores, quick=options.quick)
        except BenchError as error:
            print(f"bench: {name}: {error}", file=sys.stderr, flush=True)
            failed = True
            continue
        (folder / f"{name}.json").write_text(json.dumps(report.document(), indent=2) + "\n")
        print(f"{table(report)}\n\n{report.line()}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    # Ended by a signal, too, it takes its processes and temporary folders with it.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    sys.exit(main(sys.argv[1:]))
