"""The soak's callers: good calls, bad input, callers that leave, streams; and the account of what each call was told.

Owns what counts as lost: a call without the right answer, although the model server was up all the while. A call that overlaps
a restart may be told that it failed, but told it must be. Calls are numbered, so the model server's journal tells which ran.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from adapter_harness import Reply, encode, modern_body, modern_headers, next_event, read_reply

BAD_SHARE = 0.01
ANSWER_SECONDS = 40.0
"""More than the adapter's own bound on a call: what takes longer has no answer."""


@dataclass(kw_only=True)
class Account:
    """What was done and what came of it. `answered` holds the numbers of the calls that got their right answer."""

    done: Counter[str] = field(default_factory=Counter)
    answered: set[int] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)


class Traffic:
    """All callers of one adapter. They call while `open`; `away` says that the model server is down or just came back."""

    def __init__(self, port: int, token: str) -> None:
        self.account = Account()
        self.away = False
        self.restarts = 0
        self._port = port
        self._authorization = {"authorization": f"Bearer {token}"}
        self._numbers = itertools.count(1)
        self._open = asyncio.Event()
        self._busy = 0
        self._quiet = asyncio.Event()
        self._chance = random.Random(7)

    def resume(self) -> None:
        """Let the callers call."""
        self._open.set()

    async def pause(self) -> None:
        """Hold every caller after its call; until none is under way."""
        self._open.clear()
        async with asyncio.timeout(ANSWER_SECONDS + 10):
            while self._busy:
                self._quiet.clear()
                await self._quiet.wait()

    async def good(self) -> None:
        """Calls on one kept connection, one in a hundred of them wrong."""
        connection = _Connection(self._port)
        while True:
            async with self._turn():
                if self._chance.random() < BAD_SHARE:
                    await self._bad(connection)
                else:
                    await self._call(connection)

    async def leaving(self) -> None:
        """Calls whose caller leaves before the answer."""
        while True:
            async with self._turn():
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writer.write(self._request("slow", {"call": next(self._numbers)}))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), self._chance.uniform(0.01, 0.2))
                writer.close()
                self.account.done["callers left"] += 1

    async def streaming(self) -> None:
        """Calls that are answered as a stream."""
        while True:
            async with self._turn():
                number = next(self._numbers)
                before, disturbed = self.restarts, self.away
                sent = self._request("slow", {"call": number}, _meta={"progressToken": number})
                try:
                    reply = await _Connection(self._port).ask(sent)
                except (OSError, EOFError, TimeoutError) as error:
                    self.account.lost.append(f"stream {number}: {error!r}")
                    continue
                streamed = "event-stream" in reply.headers["content-type"]
                self.account.done["streams" if streamed else "calls"] += 1
                self._judge(number, reply.json, disturbed or self.away or self.restarts != before)

    async def listening(self) -> None:
        """Streams that hear of changed tools, each for a second."""
        body = modern_body("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        headers = modern_headers("subscriptions/listen") | self._authorization
        while True:
            async with self._turn():
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                try:
                    writer.write(encode("POST", "/mcp", body, headers))
                    event = await asyncio.wait_for(next_event(reader), ANSWER_SECONDS)
                    if event.get("method") != "notifications/subscriptions/acknowledged":
                        self.account.lost.append(f"listen stream: {event}")
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(reader.read(), 1)
                except (OSError, EOFError, TimeoutError) as error:
                    self.account.lost.append(f"listen stream: {error!r}")
                finally:
                    writer.close()
                self.account.done["listen streams"] += 1

    async def is_answered(self) -> bool:
        """Whether one call of a new caller gets its right answer."""
        number = next(self._numbers)
        try:
            reply = await _Connection(self._port).ask(self._request("score", {"call": number}))
        except (OSError, EOFError, TimeoutError):
            return False
        if _is_answer(reply.json, number):
            self.account.answered.add(number)
            return True
        return False

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        await self._open.wait()
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._quiet.set()

    async def _call(self, connection: _Connection) -> None:
        number = next(self._numbers)
        before, disturbed = self.restarts, self.away
        try:
            reply = await connection.ask(self._request("score", {"call": number}))
        except (OSError, EOFError, TimeoutError) as error:
            self.account.lost.append(f"call {number}: {error!r}")
            return
        finally:
            self.account.done["calls"] += 1
        self._judge(number, reply.json, disturbed or self.away or self.restarts != before)

    async def _bad(self, connection: _Connection) -> None:
        """One of several wrong inputs; every one is refused with what is wrong."""
        kind = self._chance.randrange(4)
        if kind == 0:
            sent = self._request("score", {"call": "one"})
        elif kind == 1:
            sent = self._request("absent", {})
        elif kind == 2:
            sent = encode("POST", "/mcp", b"{", modern_headers("tools/call", {"name": "score"}) | self._authorization)
        else:
            sent = encode("POST", "/mcp", b"{}", modern_headers("tools/call") | {"authorization": "Bearer a.b.c"})
        try:
            reply = await connection.ask(sent)
        except (OSError, EOFError, TimeoutError) as error:
            self.account.lost.append(f"bad input {kind}: {error!r}")
            return
        finally:
            self.account.done["bad inputs"] += 1
        refused = "error" in reply.json or reply.json["result"].get("isError")
        if not refused or reply.status >= 500:
            self.account.lost.append(f"bad input {kind}: {reply.status} {reply.body[:200]!r}")

    def _request(self, tool: str, arguments: dict[str, Any], **more: Any) -> bytes:
        params = {"name": tool, "arguments": arguments, **more}
        headers = modern_headers("tools/call", params) | self._authorization
        return encode("POST", "/mcp", modern_body("tools/call", params), headers)

    def _judge(self, number: int, message: dict[str, Any], disturbed: bool) -> None:
        if _is_answer(message, number):
            self.account.answered.add(number)
        elif disturbed and ("error" in message or message["result"].get("isError")):
            self.account.done["told of a restart"] += 1
        else:
            self.account.lost.append(f"call {number}: {str(message)[:300]}")


def _is_answer(message: dict[str, Any], number: int) -> bool:
    return "result" in message and message["result"].get("structuredContent") == {"call": number}


class _Connection:
    """A kept connection, opened again when the server asks for that."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, message: bytes) -> Reply:
        async with asyncio.timeout(ANSWER_SECONDS):
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._streams
            try:
                writer.write(message)
                reply = await read_reply(reader)
            except BaseException:
                self._close()
                raise
            if reply.headers.get("connection", "") == "close":
                self._close()
            return reply

    def _close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
