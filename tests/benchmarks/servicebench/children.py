"""Processes that live as long as a measurement: pinned to a core, read line by line until they are ready, always ended.

Owns their start and their end. Each one gets SIGKILL from the kernel when this process ends, however it ends. Must be used
from the main thread: the kernel ties that signal to the thread that started the child.
"""

from __future__ import annotations

import os
import select
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from servicebench.failure import BenchError

REPOSITORY = Path(__file__).resolve().parents[3]
LOGS = REPOSITORY / "build" / "bench" / "logs"
START_SECONDS = 60.0


class Child:
    """One process. Its standard output is ours to read, its errors go to a log file."""

    def __init__(self, name: str, command: list[str], *, core: int) -> None:
        LOGS.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log = LOGS / f"{name.replace(' ', '-')}.log"
        self.started = time.monotonic()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                # Both replace themselves by what follows, so the process id stays the subject's.
                ["setpriv", "--pdeathsig", "KILL", "taskset", "--cpu-list", str(core), *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=REPOSITORY,
            )
        self._rest = b""
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def _output(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def wait_for(self, wanted: Callable[[str], bool]) -> str:
        """The first line of output that is wanted.

        Raises:
            BenchError: the process ended, or the line did not come in time.
        """
        until = time.monotonic() + START_SECONDS
        while True:
            while b"\n" in self._rest:
                raw, _, self._rest = self._rest.partition(b"\n")
                line = raw.decode("utf-8", "replace")
                if wanted(line):
                    return line
            if not select.select([self._output], [], [], max(0.0, until - time.monotonic()))[0]:
                raise BenchError(f"{self.name} was not ready within {START_SECONDS:.0f} s; see {self.log}")
            chunk = os.read(self._output.fileno(), 65536)
            if not chunk:
                raise BenchError(f"{self.name} ended with code {self._process.wait()}; see {self.log}")
            self._rest += chunk

    def read_on(self) -> None:
        """Read and drop what comes from now on, as a container's runtime would: the process must never find its pipe full."""
        self._reader = threading.Thread(target=self._drop, daemon=True)
        self._reader.start()

    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def end(self) -> None:
        """Ask it to end, and after five seconds make it end."""
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._reader is not None:
            self._reader.join()
        self._output.close()

    def _drop(self) -> None:
        while os.read(self._output.fileno(), 1 << 20):
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
