"""Runs the official MCP conformance suite against the adapter, in both protocol eras.

Owns the set-ups: a model server whose operations are the tools the suite calls, and in front of it the adapter, as a process of
this machine or, with --service, as pods behind their Service (see service.py). The tools of both, and of the test suite's worst
application, pass the Inspector's strict check. Ends with one plain line of counts; expected findings, each with its reason in
baseline/, count as skipped.

Usage: ``python tests/conformance/run.py [--service NAMESPACE] [REVISION …]``; `make conformance` runs all, directly.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import baseline
import service
import suite

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "build" / "conformance"
READY_SECONDS = 60.0

TOOLS = (
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-error",
    "tools-call-with-progress",
    "json-schema-2020-12",
    "dns-rebinding-protection",
)
LEGS = {
    "2025-11-25": ("server-initialize", "ping", *TOOLS),
    "2026-07-28": ("server-stateless", "server-sse-multiple-streams", "caching", "http-header-validation", *TOOLS),
}
"""Each revision with the scenarios that must have run, so that a green run means something."""


class SetUpError(Exception):
    """The model server or the adapter did not come up."""


def main() -> int:
    """Run the named legs, or all; 0 only if nothing unexpected was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("revisions", nargs="*", metavar="REVISION", help=", ".join(LEGS))
    parser.add_argument(
        "--service", metavar="NAMESPACE", help="through a Service on kubectl's cluster; the operator watches it"
    )
    asked = parser.parse_args()
    if not set(asked.revisions) <= set(LEGS):
        parser.error(f"there are the revisions {', '.join(LEGS)}")
    passed = failed = skipped = 0
    try:
        official = suite.install()
        expected = {revision: baseline.read(baseline.FOLDER / f"{revision}.toml") for revision in LEGS}
        unjudged = baseline.read(baseline.FOLDER / "service.toml") if asked.service else {}
        results = RESULTS / "service" if asked.service else RESULTS
        for revision in asked.revisions or LEGS:
            with service.reached(asked.service) if asked.service else adapter() as url:
                checks = official.run(url, revision, results / revision)
                judged = [check for check in checks if check.name not in unjudged]
                verdict = baseline.judge(judged, expected[revision], LEGS[revision])
                for scenario in sorted({check.scenario for check in verdict.unexpected}):
                    # The suite gives some answers 0.6 s, which a busy machine can miss. Once more, and said.
                    print(f"==> MCP {revision}: {scenario} failed and runs once more", flush=True)
                    again = official.run(url, revision, results / f"{revision}-again-{scenario}", scenario)
                    judged = [check for check in judged if check.scenario != scenario]
                    judged += [check for check in again if check.name not in unjudged]
                verdict = baseline.judge(judged, expected[revision], LEGS[revision])
                portable = {"the fixture's tools": official.lint(url, revision)}
            if not asked.service:
                with adapter("worst_application.py") as url:
                    portable["the worst application's tools"] = official.lint(url, revision)
            tell(revision, verdict, portable)
            passed += verdict.passed + sum(not said for said in portable.values())
            failed += verdict.failures + sum(bool(said) for said in portable.values())
            skipped += verdict.expected + verdict.skipped + len(unjudged)
    except (suite.SuiteError, baseline.BaselineError, service.ServiceError, SetUpError) as error:
        print(f"conformance: {error}", file=sys.stderr)
        failed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed or not passed else 0


def tell(revision: str, verdict: baseline.Verdict, portable: dict[str, str]) -> None:
    """A leg's outcome in words."""
    print(
        f"==> MCP {revision}: {verdict.passed} checks passed, {verdict.failures} unexpected,"
        f" {verdict.expected} not offered (tests/conformance/baseline/{revision}.toml says why)"
    )
    for check in verdict.unexpected:
        print(f"    unexpected: {check.name}: {check.message or check.status}")
    for name in verdict.stale:
        print(f"    stale: {name} no longer fails; take it out of the baseline")
    for name in verdict.missing:
        print(f"    missing: the scenario {name} passed no check")
    for name, said in portable.items():
        print(f"==> Inspector, strict: {name}: {said or 'nothing to say'}", flush=True)


@contextmanager
def adapter(program: str = "model_server.py") -> Iterator[str]:
    """A model server and an adapter for one leg; the URL of its MCP endpoint."""
    with ExitStack() as stack:
        here = Path(__file__).resolve().parent
        model_server = stack.enter_context(started([sys.executable, str(here / program)]))
        port = next(lines(model_server), "").strip()
        if not port.isdigit():
            raise SetUpError("the fixture's model server did not start; its message stands above")
        process = stack.enter_context(started([sys.executable, str(here / "adapter_process.py"), port]))
        mcp_port, heard = 0, ""
        for line in lines(process):
            heard = line
            event = json.loads(line)
            mcp_port = event["mcp_port"] if event["event"] == "ready" else mcp_port
            if event["event"] == "backend" and event["state"] == "Ready":
                # The suite wants a name, not an address: its Host check takes localhost for granted.
                yield f"http://localhost:{mcp_port}/mcp"
                return
        raise SetUpError(f"the adapter did not find the model server's tools; its last line: {heard.strip()}")


@contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process for the time of the block. Its output stays in the pipe; both are too quiet to fill it."""
    # Where util-linux has it: the kernel ends the process when we end, even by SIGKILL.
    guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    process = subprocess.Popen([*guard, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=REPOSITORY)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def lines(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """What the process writes, line by line, until it ends or `READY_SECONDS` are over."""
    assert process.stdout is not None
    until = time.monotonic() + READY_SECONDS
    descriptor, rest = process.stdout.fileno(), b""
    while select.select([descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
        chunk = os.read(descriptor, 65536)
        if not chunk:
            return
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.decode() for line in whole)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    sys.exit(main())
