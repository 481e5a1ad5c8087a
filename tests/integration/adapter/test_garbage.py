"""A call leaves nothing behind that only the garbage collector finds: its rounds are rare, and memory grows until the next."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvloop

from adapter_harness import Running, adapter, encode, modern_body, modern_headers, read_reply
from model_apps import SlowModel, model_server
from modelservice_sidecar.exchange import Timing

WATCHED = Timing(watch_after=0.0)
"""Every call is watched for a caller who leaves, as under load those are that take more than some milliseconds."""


@contextmanager
def collected() -> Iterator[set[str]]:
    """The adapter's types of which the collector finds unreachable objects; filled when the block has ended."""
    found: set[str] = set()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        kinds = {type(each) for each in gc.garbage}
        found |= {kind.__qualname__ for kind in kinds if kind.__module__.startswith("modelservice_sidecar")}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def request(tool: str) -> bytes:
    params = {"name": tool, "arguments": {}}
    return encode("POST", "/mcp", modern_body("tools/call", params), modern_headers("tools/call", params))


async def leave(running: Running, model: SlowModel) -> None:
    """Hang up on a call that the model server works on, and wait until nothing of it runs."""
    _, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(request("slow"))
    assert await asyncio.to_thread(model.entered.acquire, timeout=20)
    writer.close()
    await writer.wait_closed()
    assert await asyncio.to_thread(model.left.wait, 20)
    model.left.clear()
    while running.adapter.calls.running.total():  # noqa: ASYNC110 - the last step is the adapter's own
        await asyncio.sleep(0)


@pytest.mark.promise("hostile")
def test_calls_leave_no_garbage_whether_answered_watched_refused_or_left() -> None:
    async def test() -> None:
        model = SlowModel()
        with model_server(model.app()) as port:
            async with adapter(port, timing=WATCHED) as running:
                reader, writer = await asyncio.open_connection("127.0.0.1", running.port)

                async def call_on_kept_connection() -> None:
                    writer.write(request("quick"))
                    assert (await read_reply(reader)).status == 200

                try:
                    await call_on_kept_connection()
                    await leave(running, model)
                    with collected() as garbage:
                        for _ in range(3):
                            await call_on_kept_connection()
                            assert (await running.modern("tools/call", {"name": "absent"})).status == 400
                            await leave(running, model)
                finally:
                    writer.close()
                assert garbage == set()

    uvloop.run(asyncio.wait_for(test(), 30))  # the loop that the adapter has in a pod
