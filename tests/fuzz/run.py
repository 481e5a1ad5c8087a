"""Fuzzes the adapter's parsers: inputs of the corpus, changed at random, until the time is up or one is a finding.

Owns how inputs are made and how a run is told. Hypothesis makes them and shrinks a finding, which is then written into the
corpus: it stays there, since `make test` replays all of it. One target is one process with bounded memory, and no input may
take more than `MAX_SECONDS` of CPU. Ends with one plain line of counts; a target is one test.

Usage: ``python tests/fuzz/run.py [--seconds 60] [TARGET …]``; `make fuzz` runs all.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "support")]

from targets import CORPUS, TARGETS, Target  # noqa: E402 - needs the path above

MAX_SECONDS = 20.0
MAX_MEMORY = 4 << 30
"""Address space of one target's process, most of which it never touches."""
MAX_INPUT = 64 * 1024
BATCH = 400
"""Inputs between two looks at the clock."""

Change = tuple[str, int, int, bytes]


def changes(words: tuple[bytes, ...]) -> st.SearchStrategy[list[Change]]:
    """What is done to an input: where and how much in 65,536ths of it, and with which bytes."""
    piece = st.sampled_from(words) | st.binary(max_size=8) if words else st.binary(max_size=8)
    kinds = st.sampled_from(["insert", "replace", "cut", "double", "end", "repeat", "move", "flip"])
    return st.lists(st.tuples(kinds, st.integers(0, 65535), st.integers(0, 65535), piece), max_size=10)


def changed(data: bytes, made: list[Change]) -> bytes:
    """The input with the changes made one after another."""
    for kind, where, much, piece in made:
        at = where * len(data) // 65536
        end = min(len(data), at + 1 + much * (len(data) - at) // 65536)
        few = data[at : at + 1 + much % 16]
        data = {
            "insert": data[:at] + piece + data[at:],
            "replace": data[:at] + piece + data[at + len(piece) :],
            "cut": data[:at] + data[at + 1 + much % 16 :],
            "double": data[:end] + data[at:end] + data[end:],
            "end": data[:at],
            "repeat": data[:at] + piece * (much % 2000) + data[at:],
            "move": data[:at] + data[at + len(few) :] + few,
            "flip": data[:at] + bytes(byte ^ (1 << much % 8) for byte in few[:1]) + data[at + 1 :],
        }[kind][:MAX_INPUT]
    return data


def fuzz(target: Target, seconds: float) -> int:
    """Try inputs until the time is up; how many. A finding is written into the corpus and raised."""
    seeds = [file.read_bytes() for file in target.corpus]
    until = time.monotonic() + seconds
    tried = 0
    smallest: bytes | None = None

    def on_alarm(number: int, frame: object) -> None:
        raise TimeoutError(f"an input took more than {MAX_SECONDS} s of CPU")

    signal.signal(signal.SIGPROF, on_alarm)
    with target.open() as check:

        @settings(
            max_examples=BATCH,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        )
        @given(chosen=st.sampled_from(seeds), made=changes(target.words))
        def batch(chosen: bytes, made: list[Change]) -> None:
            nonlocal tried, smallest
            data = changed(chosen, made)
            tried += 1
            signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
            try:
                check(data)
            except BaseException:
                smallest = data  # Hypothesis ends with the smallest
                raise
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)

        try:
            while time.monotonic() < until:
                batch()
        except BaseException:
            if smallest is not None:
                file = CORPUS / target.name / f"found-{hashlib.sha256(smallest).hexdigest()[:12]}"
                file.write_bytes(smallest)
                print(f"==> {target.name}: a finding after {tried:,} inputs, kept as {file.name}", flush=True)
            raise
    return tried


def main() -> int:
    """Run the named targets, or all, one after another; 0 if none has a finding."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each is fuzzed")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given_arguments = parser.parse_args()
    wanted = given_arguments.targets or list(TARGETS)
    if not set(wanted) <= set(TARGETS):
        parser.error(f"there are the targets {', '.join(TARGETS)}")
    if given_arguments.here:
        return one(wanted[0], given_arguments.seconds)
    command = [sys.executable, __file__, "--here", "--seconds", str(given_arguments.seconds)]
    failed = sum(subprocess.run([*command, name], check=False).returncode != 0 for name in wanted)
    print(f"{len(wanted) - failed} passed, {failed} failed, 0 skipped", flush=True)
    return 1 if failed else 0


def one(name: str, seconds: float) -> int:
    """Run one target in this process."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    try:
        tried = fuzz(TARGETS[name], seconds)
    except BaseException:
        traceback.print_exc()
        return 1
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"==> {name}: {tried:,} inputs in {seconds:.0f} s, no finding, at most {used} MB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
