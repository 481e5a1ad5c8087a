"""A model that stays available: its worker process, started again when it ends, and perhaps a spare one that is ready before.

Owns the order of calls (one at a time, first come first served), restarts and their back-off, the exchange of weights between
two calls, and what a caller is told when a process ends under its call.

A call that nobody waits for any more goes on in its process: no runtime can be interrupted, and to kill the process would cost
the next caller a whole start. Its answer is dropped. Only a call that goes on for `overtime` seconds after that is taken to be
stuck; then the process is killed and started again.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Final

from modelservice_sidecar.core import text
from modelservice_sidecar.core.errors import (
    BackendAnswerInvalidError,
    BackendAnswerTooLargeError,
    BackendDisconnectedError,
    BackendFailureError,
    BackendRefusedError,
    BackendUnreachableError,
)
from modelservice_sidecar.core.tensors import Tensor
from modelservice_sidecar.worker import wire
from modelservice_sidecar.worker.process import EndedError, Launch, WorkerProcess
from modelservice_sidecar.worker.wire import Facts, Piece, Reply, Request

FIRST_DELAY: Final = 0.1
SLOWEST_DELAY: Final = 30.0
LOAD_SECONDS: Final = 600.0
"""For importing a runtime and loading a model; what takes longer is taken to hang."""


class UnusableModelError(Exception):
    """The model cannot be run here; the text is a sentence that says what to do."""


class Worker:
    """One model. Made ready by `start`; used from one event loop."""

    def __init__(self, launch: Launch, *, overtime: float, spare: bool) -> None:
        self.starts = 0
        """How many processes were started so far."""
        self.runs = 0
        """How many calls were given to a process so far."""
        self._launch = launch
        self._overtime = overtime
        self._wants_spare = spare
        self._process: WorkerProcess | None = None
        self._spare: WorkerProcess | None = None
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._failure = ""
        self._delay = FIRST_DELAY
        self._weights = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self) -> Facts:
        """Start and load the model; what it says about itself.

        Raises:
            UnusableModelError: it cannot be run here.
        """
        process, facts = await self._start_process()
        self._take(process)
        return facts

    @property
    def ready(self) -> bool:
        """Whether a process waits for calls, or works on one."""
        return self._process is not None

    @property
    def failure(self) -> str:
        """Why there is no process, where it cannot be started again; a sentence, empty while all is well."""
        return self._failure

    @property
    def pid(self) -> int:
        """The process that takes the calls; 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    @property
    def spare_pid(self) -> int:
        """The process that would take over; 0 while there is none."""
        return self._spare.pid if self._spare is not None else 0

    async def call(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run the model on these inputs.

        Raises:
            BackendError: as its classes say.
        """
        pieces = [
            Piece(name=name, datatype=tensor.datatype, shape=list(tensor.shape), size=len(tensor.data))
            for name, tensor in inputs.items()
        ]
        try:
            reply, body = await self._ask(Request(do="run", pieces=pieces), [tensor.data for tensor in inputs.values()])
        except EndedError as error:
            then = "the model was stopped" if self._closed else "it is being started again"
            raise BackendDisconnectedError(f"The model's process {error} during the call; {then}.") from error
        if reply.outcome == "done":
            self._delay = FIRST_DELAY
            return _tensors(reply, body)
        message = text.clean(reply.message)
        if reply.outcome == "refused":
            raise BackendRefusedError(f"The model refused the input: {message}")
        if reply.outcome == "too_large":
            raise BackendAnswerTooLargeError(message)
        raise BackendFailureError(f"The model failed: {message}")

    async def load_weights(self) -> str:
        """Have every process read its file of weights again, between two calls; what is wrong with the file, if anything."""
        self._weights += 1
        for process in filter(None, [self._spare, self._process]):
            with suppress(EndedError):  # what is started in its place reads the new file anyway
                reply, _ = await self._ask(Request(do="weights"), [], process)
                if reply.outcome != "done":
                    return text.clean(reply.message)
        return ""

    async def retire(self) -> None:
        """End every process of this model once the calls that are in line for it have been answered."""
        async with self._turn:
            pass
        await self.aclose()

    async def aclose(self) -> None:
        """End every process of this model."""
        self._closed = True
        self._failure = "The model was stopped."
        self._changed.set()
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for process in filter(None, [self._process, self._spare]):
            await process.aclose()
        self._process = self._spare = None

    async def _ask(
        self, request: Request, buffers: list[wire.Buffer], process: WorkerProcess | None = None
    ) -> tuple[Reply, memoryview]:
        """One exchange in turn, with that process or, where none is given, with the one that is in use then."""
        await self._turn.acquire()
        stuck: asyncio.TimerHandle | None = None
        free = False

        def on_free() -> None:
            nonlocal free
            free = True
            if stuck is not None:
                stuck.cancel()
            self._turn.release()

        try:
            asked, answer = await self._send(request, buffers, process, on_free)
        except BaseException:
            self._turn.release()
            raise
        try:
            return await answer
        except asyncio.CancelledError:
            if not free:
                stuck = asyncio.get_running_loop().call_later(self._overtime, asked.kill)
            raise

    async def _send(
        self,
        request: Request,
        buffers: list[wire.Buffer],
        process: WorkerProcess | None,
        on_free: Callable[[], None],
    ) -> tuple[WorkerProcess, "asyncio.Future[tuple[Reply, memoryview]]"]:
        if process is not None:
            return process, process.ask(request, buffers, on_free)
        while True:
            asked = await self._current()
            try:
                answer = asked.ask(request, buffers, on_free)
            except EndedError:  # between two calls: nothing was lost, so this call waits for the next process
                await asked.ended.wait()
                continue
            self.runs += 1
            return asked, answer

    async def _current(self) -> WorkerProcess:
        """The process in use; waits for one that is being started."""
        while self._closed or self._process is None or self._process.ended.is_set():
            if self._failure:
                raise BackendUnreachableError(self._failure)
            self._changed.clear()
            await self._changed.wait()
        return self._process

    def _take(self, process: WorkerProcess) -> None:
        """Use this process from now on, and have a spare one beside it where that is wanted."""
        self._process = process
        self._failure = ""
        self._changed.set()
        self._keep(self._watch(process))
        if self._wants_spare and self._spare is None:
            self._keep(self._fill(0.0))

    async def _watch(self, process: WorkerProcess) -> None:
        """Wait for its end, let the spare take over, and start another."""
        await process.ended.wait()
        if process is self._spare:
            self._spare = None
        elif process is self._process:
            self._process = None
            if self._spare is not None:
                self._process, self._spare = self._spare, None
                self._changed.set()
        else:
            return
        delay = self._delay
        self._delay = min(delay * 2, SLOWEST_DELAY)
        await self._fill(delay)

    async def _fill(self, delay: float) -> None:
        """Start what is missing, after that delay; ever later while it fails."""
        while True:
            await asyncio.sleep(delay)
            if self._process is not None and (self._spare is not None or not self._wants_spare):
                return
            weights = self._weights
            try:
                fresh, _ = await self._start_process()
            except UnusableModelError as error:
                if self._process is None:
                    self._failure = str(error)
                    self._changed.set()
                delay = self._delay
                self._delay = min(delay * 2, SLOWEST_DELAY)
                continue
            if weights != self._weights:  # it may have read the file that was there before
                await fresh.aclose()
                delay = 0.0
            elif self._process is None:
                self._take(fresh)
                return
            elif self._wants_spare and self._spare is None:
                self._spare = fresh
                self._keep(self._watch(fresh))
                return
            else:
                await fresh.aclose()
                return

    async def _start_process(self) -> tuple[WorkerProcess, Facts]:
        artifact = self._launch.load.artifact
        self.starts += 1
        try:
            process = WorkerProcess(self._launch)
        except EndedError as error:
            raise UnusableModelError(f"The model's process {error}.") from error
        try:
            await process.connect()
            async with asyncio.timeout(LOAD_SECONDS):
                reply, _ = await process.ask(Request(do="load", load=self._launch.load), [], lambda: None)
            if reply.outcome != "done" or reply.facts is None:
                raise UnusableModelError(f"{artifact}: {text.clean(reply.message)}")
        except BaseException as error:
            await process.aclose()
            if isinstance(error, EndedError):
                raise UnusableModelError(f"{artifact} cannot be loaded: the model's process {error}.") from error
            if isinstance(error, TimeoutError):
                raise UnusableModelError(f"{artifact} was not loaded within {LOAD_SECONDS:.0f} s.") from error
            raise
        return process, reply.facts

    def _keep(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _tensors(reply: Reply, body: memoryview) -> dict[str, Tensor]:
    from modelservice_sidecar.core import codec

    try:
        return {
            piece.name: codec.from_bytes(piece.datatype, piece.shape, data, limit=len(body))
            for piece, data in wire.pieces(reply.pieces, body)
        }
    except (wire.WireError, codec.CodecError) as error:
        raise BackendAnswerInvalidError(f"The model's process answered what is no tensor: {error}.") from error
