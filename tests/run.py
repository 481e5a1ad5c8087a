"""Runs suites one after another and ends with one plain line of counts over all of them.

Owns the order, the counting and the exit code of `make test` and `make test-fast`; what a suite is stands in its folder.
A suite that cannot even start counts as one failure, so the last line never says that all is well when it is not.

Usage: ``python tests/run.py lint unit contract integration e2e``
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "build" / "test"
SERVERS = ("kserve", "mlserver", "onnx", "redis", "torch", "transformers", "triton", "tvm")
SUITES = ("unit", "contract", "integration", "e2e")


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What came of tests. Errors count as failures."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Both together."""
        return Counts(
            passed=self.passed + other.passed,
            failed=self.failed + other.failed,
            skipped=self.skipped + other.skipped,
        )

    def __str__(self) -> str:
        """The plain line."""
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def read_counts(report: Path) -> Counts:
    """Counts of a JUnit report, as pytest writes it."""
    suites = [suite.attrib for suite in ElementTree.parse(report).getroot().iter("testsuite")]
    total, skipped = (sum(int(suite[key]) for suite in suites) for key in ("tests", "skipped"))
    failed = sum(int(suite["failures"]) + int(suite["errors"]) for suite in suites)
    return Counts(passed=total - failed - skipped, failed=failed, skipped=skipped)


def run_suite(name: str) -> Counts:
    """One suite by pytest, in a process of its own."""
    report = RESULTS / f"{name}.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", f"tests/{name}", f"--junit-xml={report}", "--durations=5"]
    code = subprocess.run(command, cwd=REPOSITORY, check=False).returncode
    counts = read_counts(report) if report.is_file() else Counts()
    # No test at all, a crash, or a warning that became an error at the end: nothing that a report would show.
    return counts if code == 0 or counts.failed else counts + Counts(failed=1)


def run_lint() -> Counts:
    """The linters; a finding counts as one failure, no finding as nothing."""
    return Counts(
        failed=1
        if subprocess.run(["make", "--no-print-directory", "lint"], cwd=REPOSITORY, check=False).returncode
        else 0
    )


def prepare(names: list[str]) -> None:
    """Makes what takes long before any test's time limit runs: on a new machine that is Kubernetes itself."""
    if {"integration", "e2e"} & set(names):
        # TVM links with a C++ compiler; Triton's models embed Python.
        run_code(
            "from localcluster import packages, settings; logs = settings.read_folders().logs; "
            "packages.require(['g++'], log=logs / 'install-compiler.log'); "
            "packages.require_libpython(log=logs / 'install-libpython.log')"
        )
        # Real model servers: several gigabytes the first time, kept below the cache folder.
        subprocess.run([sys.executable, "tests/support/venvs.py", *SERVERS], cwd=REPOSITORY, check=False)
    if "e2e" in names:
        run_localcluster("prepare")
    elif {"contract", "integration"} & set(names):
        run_code(
            "from localcluster import programs, settings as s; p = programs.Programs(folders=s.read_folders()); "
            "p.kube(); p.tool(programs.HELM)"
        )


def run_code(code: str) -> None:
    """A few lines with the cluster command's modules. What goes wrong there the tests will tell."""
    environment = {**os.environ, "PYTHONPATH": "tests/cluster"}
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, env=environment, check=False)


def run_end_to_end() -> Counts:
    """The suite that needs images and a cluster. What it started, it takes down; what was up before stays."""
    name = os.environ.get("MODELSERVICE_CLUSTER_NAME", "modelservice-test")
    stays = os.environ.get("KEEP_CLUSTER") == "1" or f"cluster {name}: up" in run_localcluster("status")
    try:
        if subprocess.run(["make", "--no-print-directory", "images"], cwd=REPOSITORY, check=False).returncode:
            return Counts(failed=1)
        return run_suite("e2e")
    finally:
        if not stays:
            run_localcluster("down", "--name", name)


def run_localcluster(*arguments: str) -> str:
    """The cluster command; what it printed."""
    environment = {**os.environ, "PYTHONPATH": "tests/cluster"}
    command = [sys.executable, "-m", "localcluster", *arguments]
    return subprocess.run(
        command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True, check=False
    ).stdout


@contextmanager
def announced(name: str) -> Iterator[None]:
    """Says that a suite begins and how long it took."""
    begin = time.monotonic()
    print(f"==> {name}", flush=True)
    yield
    print(f"==> {name}: {time.monotonic() - begin:.0f} s", flush=True)


def main(names: list[str]) -> int:
    """Runs the named suites; 0 only if nothing failed."""
    runners = {"lint": run_lint, "e2e": run_end_to_end} | {
        name: (lambda name=name: run_suite(name)) for name in SUITES if name != "e2e"
    }
    if not names or not set(names) <= set(runners):
        print(__doc__, file=sys.stderr)
        return 2
    RESULTS.mkdir(parents=True, exist_ok=True)
    total = Counts()
    with announced("programs that tests need"):
        prepare(names)
    for name in names:
        with announced(name):
            total += runners[name]()
    print(total, flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
