"""Runs wrk against one subject and reads its figures back.

Owns the call of wrk and the format of its line (`wrk.lua` writes it). Any wrong answer or broken connection is an error: a
server that fails quickly is not fast.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from servicebench.failure import BenchError
from servicebench.wire import Wire

SCRIPT = Path(__file__).with_name("wrk.lua")


@dataclass(frozen=True, kw_only=True)
class Load:
    """What one run measured; latencies in microseconds, as the caller sees them."""

    requests: int
    seconds: float
    p50: float
    p99: float

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds


def run(wire: Wire, port: int, *, subject: str, connections: int, seconds: int) -> Load:
    """Load a subject for a while, each connection asking again as soon as it is answered.

    Raises:
        BenchError: an answer was wrong, a connection broke, or wrk failed.
    """
    with tempfile.TemporaryDirectory(prefix="modelservice-bench-") as folder:
        body = Path(folder) / "body.json"
        body.write_bytes(wire.body)
        command = ["wrk", "--threads", "1", "--connections", str(connections), "--duration", f"{seconds}s"]
        command += ["--timeout", "5s", "--script", str(SCRIPT), f"http://127.0.0.1:{port}{wire.path}", "--"]
        command += [wire.marker, str(body), *(f"{name}: {value}" for name, value in wire.headers.items())]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=seconds + 30,
                env={**os.environ, "LC_ALL": "C"},
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"wrk did not end when it measured {subject}") from error
    if done.returncode != 0:
        raise BenchError(f"wrk failed when it measured {subject}: {done.stderr.strip() or done.stdout.strip()}")
    return parse(done.stdout, subject)


def parse(output: str, subject: str) -> Load:
    """The figures in wrk's output.

    Raises:
        BenchError: there are none, or not every answer was right.
    """
    line = next((line for line in output.splitlines() if line.startswith("MEASURED ")), None)
    if line is None:
        raise BenchError(f"wrk said nothing about {subject}")
    requests, microseconds, p50, p99, wrong, broken = (int(field) for field in line.split()[1:])
    if wrong or broken:
        raise BenchError(f"{subject}: of {requests} answers {wrong} were wrong, and {broken} connections broke")
    if requests == 0:
        raise BenchError(f"{subject} answered nothing")
    return Load(requests=requests, seconds=microseconds / 1e6, p50=p50, p99=p99)
