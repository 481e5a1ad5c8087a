"""One worker process, seen from the adapter: started, loaded, asked one thing at a time, ended.

Owns the child's environment, its socket and its end. Knows no model and starts nothing again: that is `supervised`.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import msgspec

from modelservice_sidecar.worker import wire
from modelservice_sidecar.worker.wire import Buffer, Load, Reply, Request

PROGRAM: Final = Path(__file__).with_name("program.py")
INHERITED: Final = ("PATH", "LD_LIBRARY_PATH", "LANG", "TMPDIR", "TZ", "NVIDIA_DRIVER_CAPABILITIES")
"""What a worker gets of the adapter's environment. Nothing else: a model's code has no business with the adapter's secrets."""

_HEAD_ROOM: Final = 64 * 1024
_decode_reply: Final = msgspec.msgpack.Decoder(Reply).decode

Answered = tuple[Reply, memoryview]


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """How to start a worker for one model. `devices` is its CUDA_VISIBLE_DEVICES; empty is none."""

    runtime: str
    load: Load
    python: str = ""
    devices: str = ""


class EndedError(Exception):
    """The worker's process ended; the text says how, to be put after "The model's process"."""


class WorkerProcess:
    """A started child. `ended` is set when it is gone, by whatever cause."""

    def __init__(self, launch: Launch) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        self.ended = asyncio.Event()
        self.ending = ""
        self._socket = ours
        self._connection: _Connection | None = None
        command = [launch.python or sys.executable, "-I", str(PROGRAM), launch.runtime]
        command += [str(theirs.fileno()), str(os.getpid()), launch.load.artifact]
        try:
            # In the loop's own thread, never in a pool's: the kernel ends the worker with the thread that started it.
            self._process = subprocess.Popen(  # noqa: S603 - the interpreter is configured, nothing is a caller's
                command,
                env=environment(launch, os.environ),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=2,  # a runtime that prints must not write between the adapter's log lines
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise EndedError(f"cannot be started: {error.strerror}: {command[0]}") from error
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def connect(self) -> None:
        """Begin to listen to it."""
        loop = asyncio.get_running_loop()
        _, self._connection = await loop.create_unix_connection(lambda: _Connection(self._on_lost), sock=self._socket)

    def ask(self, request: Request, buffers: Sequence[Buffer], on_free: Callable[[], None]) -> asyncio.Future[Answered]:
        """Send a request. `on_free` is called once, when the worker can take the next one or has ended: a worker cannot be
        interrupted, so an answer that nobody awaits any more is received and dropped.

        Raises:
            EndedError: it has ended, and nothing was sent.
        """
        if self._connection is None or self._process.poll() is not None or self.ended.is_set():
            raise EndedError(self.ending or _ending(self._process.poll() or 0))
        return self._connection.ask(wire.frame(request, buffers), on_free)

    def kill(self) -> None:
        """End it and whatever it started, now."""
        if self._process.returncode is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    async def aclose(self) -> None:
        """End it and wait until it is gone."""
        self.kill()
        if self._connection is None:
            self._socket.close()
            await asyncio.to_thread(self._process.wait)
            return
        self._connection.close()
        await self.ended.wait()

    def _on_lost(self, connection: "_Connection") -> None:
        self._reaping = asyncio.ensure_future(self._reap(connection))

    async def _reap(self, connection: "_Connection") -> None:
        # Its socket is closed. What still lives without one, or a child of its own, cannot be of use.
        try:
            code = await asyncio.to_thread(self._process.wait, 1.0)
        except subprocess.TimeoutExpired:
            self.kill()
            code = await asyncio.to_thread(self._process.wait)
        self.ending = _ending(code)
        self.ended.set()
        connection.fail(EndedError(self.ending))


def environment(launch: Launch, given: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a worker."""
    threads = str(launch.load.threads)
    return {
        **{name: given[name] for name in INHERITED if name in given},
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the default is fastest first, which is not what an index means to people
        "CUDA_VISIBLE_DEVICES": launch.devices,
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "TVM_NUM_THREADS": threads,
        "TVM_USE_RUNTIME_LIB": "1",  # the compiler is not needed to run, and is twice as large
        "OMP_WAIT_POLICY": "PASSIVE",
    }


def _ending(code: int) -> str:
    if code == wire.EXIT_BARE_INTERPRETER:
        return "cannot be started: its Python has no numpy or no msgspec; install both beside the runtime"
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"


class _Connection(asyncio.BufferedProtocol):
    """The adapter's end of the socket: writes a frame, reads the frame that answers it."""

    def __init__(self, on_lost: "Callable[[_Connection], None]") -> None:
        self._on_lost = on_lost
        self._transport: asyncio.WriteTransport | None = None
        self._answer: asyncio.Future[Answered] | None = None
        self._on_free: Callable[[], None] | None = None
        self._room = memoryview(bytearray(_HEAD_ROOM))
        self._filled = 0
        self._reply: Reply | None = None
        self._body = memoryview(b"")

    def ask(self, parts: list[Buffer], on_free: Callable[[], None]) -> asyncio.Future[Answered]:
        assert self._on_free is None
        assert self._transport is not None
        self._on_free = on_free
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.writelines(parts)
        return self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def fail(self, error: Exception) -> None:
        """Tell who still waits."""
        answer, on_free = self._answer, self._on_free
        self._answer = self._on_free = None
        if answer is not None and not answer.done():
            answer.set_exception(error)
        if on_free is not None:
            on_free()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's is one without saying so

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._on_lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._room[self._filled :] if self._reply is None else self._body[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._reply is None and not self._begin():
            return
        if self._reply is not None and self._filled == len(self._body):
            self._finish(self._reply)

    def _begin(self) -> bool:
        """Read the head, once it is there whole; what came with it is the body's beginning."""
        if self._filled < wire.PREFIX.size:
            return False
        head_size, body_size = wire.PREFIX.unpack_from(self._room)
        start = wire.PREFIX.size + head_size
        # The worker knows these bounds and keeps to them; one that does not is no worker of ours any more.
        too_much = self._filled - start > body_size
        if self._on_free is None or head_size > wire.MAX_HEAD or body_size > wire.MAX_BODY or too_much:
            self.close()
            return False
        if self._filled < start:
            return False
        try:
            self._reply = _decode_reply(self._room[wire.PREFIX.size : start])
        except msgspec.MsgspecError:
            self.close()
            return False
        self._body = memoryview(bytearray(body_size))
        self._filled -= start
        self._body[: self._filled] = self._room[start : start + self._filled]
        return True

    def _finish(self, reply: Reply) -> None:
        answer, on_free, body = self._answer, self._on_free, self._body
        self._answer = self._on_free = self._reply = None
        self._filled, self._body = 0, memoryview(b"")
        if answer is not None and not answer.done():
            answer.set_result((reply, body))
        if on_free is not None:
            on_free()
