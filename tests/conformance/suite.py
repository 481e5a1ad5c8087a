"""The official MCP conformance suite and Inspector as programs: installed once into the user's cache, run over one server.

Owns where they and their Node come from. All are pinned in package-lock.json beside this file: the suite because npm's `latest`
knows nothing of MCP 2026-07-28, and Node because neither starts on less than 22, which most systems do not have.
Knows nothing of the adapter. Checks are read from the files that the suite writes, not from what it prints.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
MANIFESTS = ("package.json", "package-lock.json")
ENTRY = Path("node_modules/@modelcontextprotocol/conformance/dist/index.js")
INSPECTOR = Path("node_modules/@modelcontextprotocol/inspector/clients/cli/build/index.js")
ERAS = {"2025-11-25": "legacy", "2026-07-28": "modern"}
"""The Inspector's words for how a revision opens."""
LEG_SECONDS = 240
LINT_SECONDS = 60
_STAMP = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")


class SuiteError(Exception):
    """The suite cannot be had or did not run; the text is a sentence for who started this."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One finding of one scenario. `status` is the suite's own word for it."""

    scenario: str
    id: str
    status: str
    message: str = ""

    @property
    def name(self) -> str:
        """As a baseline names it."""
        return f"{self.scenario}:{self.id}"

    @property
    def failed(self) -> bool:
        """Warnings count: they are requirements that the specification words as SHOULD."""
        return self.status in {"FAILURE", "WARNING"}


@dataclass(frozen=True, kw_only=True)
class Suite:
    """An installed suite."""

    node: Path
    entry: Path
    inspector: Path

    def lint(self, url: str, revision: str) -> str:
        """What the Inspector's strict check says against the schemas of all tools; nothing where it is content.

        Raises:
            SuiteError: it did not run, or found no tool.
        """
        command = [self.node, self.inspector, url, "--transport", "http", "--protocol-era", ERAS[revision]]
        command += ["--method", "tools/list", "--strict", "--format", "json"]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LINT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise SuiteError(f"the Inspector did not end within {LINT_SECONDS} s") from error
        try:
            tools = json.loads(done.stdout)["result"]["tools"]
        except (ValueError, KeyError) as error:
            raise SuiteError(f"the Inspector listed no tools: {done.stderr.strip()[-500:]}") from error
        if not tools:
            raise SuiteError("the Inspector was shown no tool")
        return done.stderr.strip() or ("" if done.returncode == 0 else f"exit code {done.returncode}")

    def run(self, url: str, revision: str, results: Path, scenario: str | None = None) -> list[Check]:
        """Every scenario that applies to the revision, or one of them, spoken as that revision speaks.

        Raises:
            SuiteError: it did not end in time, or wrote nothing.
        """
        shutil.rmtree(results, ignore_errors=True)
        results.mkdir(parents=True)
        command: list[str | Path] = [self.node, self.entry, "server", "--url", url, "--spec-version", revision]
        command += ["--suite", "all"] if scenario is None else ["--scenario", scenario]
        with (results / "output.txt").open("wb") as output:
            try:
                subprocess.run(
                    [*command, "--output-dir", results],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=LEG_SECONDS,
                    check=False,  # it fails on every feature that is not offered; the baseline judges
                )
            except subprocess.TimeoutExpired as error:
                raise SuiteError(f"the suite did not end within {LEG_SECONDS} s; see {results}/output.txt") from error
        checks = read_checks(results)
        if not checks:
            raise SuiteError(f"the suite ran no scenario; see {results}/output.txt")
        return checks


def read_checks(results: Path) -> list[Check]:
    """What the suite wrote: a folder per scenario, `server-NAME-TIME/checks.json`."""
    found: list[Check] = []
    for file in sorted(results.glob("*/checks.json")):
        scenario = _STAMP.sub("", file.parent.name).removeprefix("server-")
        found += [
            Check(
                scenario=scenario,
                id=str(entry["id"]),
                status=str(entry["status"]),
                message=str(entry.get("errorMessage") or ""),
            )
            for entry in json.loads(file.read_text())
        ]
    return found


def install() -> Suite:
    """The suite, downloaded the first time.

    Raises:
        SuiteError: npm is missing or failed, or there is no Node for this machine.
    """
    machine = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine())
    if platform.system() != "Linux" or machine is None:
        raise SuiteError(
            f"the pinned Node is for Linux on x86-64 or arm64, not {platform.system()} {platform.machine()}"
        )
    contents = [(HERE / name).read_bytes() for name in MANIFESTS]
    place = _cache() / f"suite@{_key(contents)}"
    node = place / f"node_modules/node-linux-{machine}/bin/node"
    suite = Suite(node=node, entry=place / ENTRY, inspector=place / INSPECTOR)
    if suite.node.is_file() and suite.entry.is_file() and suite.inspector.is_file():
        return suite
    npm = shutil.which("npm")
    if npm is None:
        raise SuiteError("npm is needed to fetch the suite; get it as root on Debian or Ubuntu: apt-get install npm")
    print(
        f"==> fetching the official MCP conformance suite, the Inspector, and the Node 22 that they need, into {place}",
        flush=True,
    )
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix="suite@", suffix=".building", dir=place.parent))
    try:
        for name, content in zip(MANIFESTS, contents, strict=True):
            (temporary / name).write_bytes(content)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        done = subprocess.run(command, cwd=temporary, stdin=subprocess.DEVNULL, timeout=600, check=False)
        if done.returncode != 0:
            raise SuiteError("npm could not fetch the suite; its message stands above")
        shutil.rmtree(place, ignore_errors=True)
        temporary.rename(place)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SuiteError(f"the suite could not be fetched: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return suite


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(root) / "modelservice" / "conformance"


def _key(contents: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for content in contents:
        digest.update(b"%d\n" % len(content) + content)
    return digest.hexdigest()[:12]
