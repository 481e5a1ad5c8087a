"""Calls other programs so that none of them outlives us by accident. Knows nothing of clusters.

Every program started here gets SIGKILL from the kernel when this process ends, however it ends. A *sealed* program
moreover gets its own process and mount namespaces, where we are root: with it go all its children and whatever it had
mounted.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from localcluster.errors import ClusterError, CommandError
from localcluster.progress import Step

Check = Callable[[], bool]
Command = Sequence[str | Path]

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
# Kept from being collected, at which Python would warn that they still run; that is what they are for.
_detached: list[subprocess.Popen[bytes]] = []
_SEAL = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--")


def _die_with(parent: int) -> Callable[[], None]:
    def in_child() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the line above
            os._exit(1)

    return in_child


def run(
    command: Command,
    *,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 120,
) -> str:
    """Runs a program to its end and returns what it wrote to stdout.

    Args:
        env: Variables on top of our own.
        timeout: Seconds.

    Raises:
        CommandError: It is not there, ended with an error or took too long.
    """
    arguments = [str(part) for part in command]
    try:
        done = subprocess.run(
            arguments,
            input=(stdin or "").encode(),
            capture_output=True,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            timeout=timeout,
            preexec_fn=_die_with(os.getpid()),
            check=False,
        )
    except FileNotFoundError as error:
        raise CommandError(arguments, f"not found ({error.filename})", "") from error
    except subprocess.TimeoutExpired as error:
        heard = (error.stderr or b"") + (error.stdout or b"")
        raise CommandError(arguments, f"no end after {timeout:.0f} s", heard.decode(errors="replace")) from error
    if done.returncode != 0:
        output = (done.stderr or done.stdout).decode(errors="replace")
        raise CommandError(arguments, f"exit code {done.returncode}", output)
    return done.stdout.decode(errors="replace")


def succeeds(command: Command, *, env: Mapping[str, str] | None = None, timeout: float = 20) -> bool:
    """Whether the program is there and ends well in time."""
    try:
        run(command, env=env, timeout=timeout)
    except CommandError:
        return False
    return True


def run_watched(
    command: Command,
    *,
    step: Step,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    sealed: bool = False,
) -> None:
    """Runs something slow: its output goes to ``log``, its last line to the step's sign of life.

    Raises:
        CommandError: It is not there or ended with an error.
    """
    arguments = [str(part) for part in command]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        try:
            process = subprocess.Popen(
                [*_SEAL, *arguments] if sealed and os.geteuid() == 0 else arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env={**os.environ, **(env or {})},
                cwd=cwd,
                preexec_fn=_die_with(os.getpid()),
            )
        except FileNotFoundError as error:
            raise CommandError(arguments, f"not found ({error.filename})", "") from error
        with process:
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    file.write(line)
                    step.note(line)
            except BaseException:
                process.kill()
                raise
    if process.returncode != 0:
        raise CommandError(arguments, f"exit code {process.returncode}, all of its output is in {log}", log.read_text())


def start(command: Command, *, log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Starts a program that runs until it is ended, or until we end."""
    return _start(command, log=log, env=env, preexec=_die_with(os.getpid()), new_session=False)


def start_detached(command: Command, *, log: Path) -> subprocess.Popen[bytes]:
    """Starts a program that is meant to outlive us. Whoever calls this must be able to find it again."""
    process = _start(command, log=log, env=None, preexec=None, new_session=True)
    _detached.append(process)
    return process


def _start(
    command: Command,
    *,
    log: Path,
    env: Mapping[str, str] | None,
    preexec: Callable[[], None] | None,
    new_session: bool,
) -> subprocess.Popen[bytes]:
    arguments = [str(part) for part in command]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        try:
            return subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                preexec_fn=preexec,
                start_new_session=new_session,
            )
        except FileNotFoundError as error:
            raise CommandError(arguments, f"not found ({error.filename})", "") from error


def end(process: subprocess.Popen[bytes], *, patience: float = 5) -> None:
    """Asks a program of ours to end, and makes it end after ``patience`` seconds."""
    process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_foreign(pid: int, *, patience: float, kill: bool = False) -> bool:
    """Asks or makes a process end that is not our child, by its id. Tells whether it had ended in time."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL if kill else signal.SIGTERM)
        readable, _, _ = select.select([handle], [], [], patience)
        return bool(readable)
    finally:
        os.close(handle)


def until(check: Check, *, what: str, seconds: float, pause: float = 0.05) -> None:
    """Waits for something that sends no event of its own.

    Raises:
        ClusterError: It did not come true in time.
    """
    limit = time.monotonic() + seconds
    while not check():
        if time.monotonic() > limit:
            raise ClusterError(f"{what}: not after {seconds:.0f} s")
        time.sleep(pause)
