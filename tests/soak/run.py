"""The soak: ten minutes of mixed traffic through one adapter while its configuration changes and its model server is killed.

Owns the course and the verdict: no call lost and none run twice, no traceback, memory that does not grow, and as many
descriptors and tasks at the end as at the beginning. One line a minute; the last one is the verdict.

Usage: ``python tests/soak/run.py [SECONDS]``; `make soak SECONDS=…`.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from parts import AdapterProcess, Look, ModelServer, adapter, swap
from traffic import Traffic

from modelservice_api.adapter_config import (
    AdapterConfig,
    AuthConfig,
    CircuitBreakerConfig,
    IssuerConfig,
    LimitsConfig,
    LoggingConfig,
    RateLimitingConfig,
    RetryConfig,
    TokenBucketConfig,
    ToolOverride,
    ToolsConfig,
    TracingConfig,
)
from otlp_receiver import collector
from token_issuer import RESOURCE, Issuer

DEFAULT_SECONDS = 600
GOOD, LEAVING, STREAMING, LISTENING = 8, 2, 2, 2
CONFIG_EVERY, RESTART_EVERY, LOOK_EVERY = 5.0, 20.0, 1.0
GROWTH_MB = 1.0
"""What memory may grow in the second half, by the line through all looks: as much as after a million calls."""
JUDGED_FROM = 300
"""In fewer seconds, memory has not settled and its line means nothing."""


@dataclass(kw_only=True)
class Course:
    """One soak."""

    seconds: float
    adapter: AdapterProcess
    model: ModelServer
    traffic: Traffic
    config_file: Path
    configs: list[AdapterConfig]
    began: float = field(default_factory=time.monotonic)
    looks: list[tuple[float, Look]] = field(default_factory=list)
    configs_changed: int = 0

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    async def change_config(self) -> None:
        """Another good document every time, and now and then a bad one, which takes nothing away."""
        number = 0
        while True:
            await asyncio.sleep(CONFIG_EVERY)
            number += 1
            if number % 4 == 0:
                rejected = self.adapter.events["config_rejected"]
                swap(self.config_file, "{")
                await self.adapter.until(lambda seen=rejected: self.adapter.events["config_rejected"] > seen)
            else:
                wanted = self.configs[number % len(self.configs)]
                swap(self.config_file, wanted.to_json())
                digest = wanted.digest()
                await self.adapter.until(lambda wanted=digest: self.adapter.digest == wanted)
            self.configs_changed += 1

    async def restart_model(self) -> None:
        """Kill it under load; the load's own calls tell when it is back."""
        while True:
            await asyncio.sleep(RESTART_EVERY)
            self.traffic.away = True
            await self.model.kill()
            await self.model.start()
            async with asyncio.timeout(30):
                while not await self.traffic.is_answered():  # noqa: ASYNC110 - what is waited for is in another process
                    await asyncio.sleep(0.05)
            self.traffic.restarts += 1
            self.traffic.away = False

    async def watch(self) -> None:
        """Look every second, tell every minute."""
        told = 0
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self.looks.append((self.elapsed, await self.adapter.look()))
            if self.elapsed // 60 > told:
                told = int(self.elapsed // 60)
                self.tell(f"minute {told}")

    def tell(self, when: str) -> None:
        """One line."""
        done, look = self.traffic.account.done, self.looks[-1][1]
        counts = ", ".join(f"{done[kind]} {kind}" for kind in KINDS)
        print(
            f"{when}: {counts}; {self.configs_changed} configs, {self.traffic.restarts} restarts;"
            f" {look.resident:.1f} MB, {look.descriptors} descriptors, {look.tasks} tasks;"
            f" {len(self.traffic.account.lost)} lost, {len(self.adapter.complaints)} complaints",
            flush=True,
        )


KINDS = ("calls", "bad inputs", "callers left", "streams", "listen streams", "told of a restart")


def configs(issuer: Issuer, spans: str) -> list[AdapterConfig]:
    """Documents that differ in every block, and under each of which every good call is answered."""
    plenty = TokenBucketConfig(max_tokens=1_000_000, refill_period=1)
    idp = IssuerConfig(name="idp", issuer=issuer.url, audiences=(RESOURCE,), jwks=issuer.jwks())
    base = AdapterConfig(
        auth=AuthConfig(issuers=(idp,), resource=RESOURCE),
        rate_limiting=RateLimitingConfig(per_user=plenty),
        circuit_breaker=CircuitBreakerConfig(open_duration=0.5),
        retry=RetryConfig(),
        tracing=TracingConfig(endpoint=spans, sample_ratio=0.01),
    )
    changes: list[dict[str, object]] = [
        {},
        {"rate_limiting": None, "limits": LimitsConfig(max_concurrency=32)},
        {"logging": LoggingConfig(bodies="Redacted")},
        {"tracing": TracingConfig()},
        {"tools": ToolsConfig(overrides={"score": ToolOverride(description="Another text.")})},
    ]
    return [base.model_copy(update=change) for change in changes]


async def soak(seconds: float) -> list[str]:
    """Everything that went wrong; empty where nothing did."""
    issuer = Issuer()
    token = issuer.token(issuer.claims(exp=int(time.time() + seconds) + 3600))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="modelservice-soak-")))
        documents = configs(issuer, stack.enter_context(collector()).endpoint)
        config_file = folder / "config.json"
        swap(config_file, documents[0].to_json())
        model = ModelServer(port, folder / "journal")
        await model.start()
        stack.push_async_callback(model.kill)
        running = await stack.enter_async_context(adapter(config_file, port))
        traffic = Traffic(running.port, token)
        course = Course(
            seconds=seconds,
            adapter=running,
            model=model,
            traffic=traffic,
            config_file=config_file,
            configs=documents,
        )
        quiet = await run(course)
        runs = model.runs()
        course.tell("end")
    return list(problems(course, quiet, runs))


async def run(course: Course) -> tuple[Look, Look]:
    """The load and what happens meanwhile; the adapter's looks without load, after the first tenth and at the end."""
    traffic = course.traffic
    callers = [traffic.good] * GOOD + [traffic.leaving] * LEAVING
    callers += [traffic.streaming] * STREAMING + [traffic.listening] * LISTENING
    tasks = [asyncio.create_task(caller()) for caller in callers]
    traffic.resume()
    await _for(course.seconds / 10, tasks)
    first = await quiet_look(course)
    events = [course.change_config, course.restart_model, course.watch]
    tasks += [asyncio.create_task(event()) for event in events]
    traffic.resume()
    await _for(course.seconds - course.elapsed, tasks)
    changing, restarting = tasks[-3:-1]
    changing.cancel()
    while traffic.away:  # a restart that began is seen to its end
        await _for(0.1, [restarting])
    restarting.cancel()
    last = await quiet_look(course, first)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return first, last


async def quiet_look(course: Course, before: Look | None = None) -> Look:
    """The adapter without load: at once, or when it has as little open as before, for which it has a while."""
    await course.traffic.pause()
    until = time.monotonic() + 20
    look = await course.adapter.look()
    while (
        before is not None
        and (look.descriptors > before.descriptors or look.tasks > before.tasks)
        and time.monotonic() < until
    ):
        await asyncio.sleep(0.2)
        look = await course.adapter.look()
    return look


async def _for(seconds: float, tasks: list[asyncio.Task[None]]) -> None:
    """So long; a task that ends ends the soak, with its error."""
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


def problems(course: Course, quiet: tuple[Look, Look], runs: Counter[int]) -> Iterator[str]:
    """What does not hold."""
    account = course.traffic.account
    yield from (f"no {kind}, so nothing was shown of them" for kind in KINDS[:-1] if not account.done[kind])
    yield from (f"lost: {each}" for each in account.lost[:10])
    if len(account.lost) > 10:
        yield f"{len(account.lost)} calls were lost in all"
    if unrun := [number for number in account.answered if not runs[number]]:
        yield f"{len(unrun)} calls were answered and never ran, such as {unrun[:3]}"
    if doubled := [number for number, times in runs.items() if times > 1]:
        yield f"{len(doubled)} calls ran more than once, such as {doubled[:3]}"
    yield from (f"the adapter said: {each}" for each in course.adapter.complaints[:10])
    first, last = quiet
    if last.descriptors > first.descriptors:
        yield f"descriptors grew from {first.descriptors} to {last.descriptors}"
    if last.tasks > first.tasks:
        yield f"tasks grew from {first.tasks} to {last.tasks}"
    second_half = [(at, look.resident) for at, look in course.looks if at > course.seconds / 2]
    growth = rise(second_half)
    print(f"memory in the second half: {growth:+.2f} MB by the line through {len(second_half)} looks", flush=True)
    if course.seconds >= JUDGED_FROM and growth > GROWTH_MB:
        yield f"memory grew by {growth:.2f} MB in the second half; {GROWTH_MB:g} MB is the bound"


def rise(points: list[tuple[float, float]]) -> float:
    """How far the line of least squares rises from the first point to the last."""
    if len(points) < 2:
        return 0.0
    middle_x = sum(x for x, _ in points) / len(points)
    middle_y = sum(y for _, y in points) / len(points)
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    slope = sum((x - middle_x) * (y - middle_y) for x, y in points) / spread
    return slope * (points[-1][0] - points[0][0])


def main(arguments: list[str]) -> int:
    """The soak; 0 if all holds."""
    try:
        seconds = float(arguments[0]) if arguments else DEFAULT_SECONDS
    except ValueError:
        seconds = 0.0
    if len(arguments) > 1 or seconds < 30:
        print("soak: SECONDS is one number, 30 or more", file=sys.stderr)
        return 2
    print(f"soak: {seconds:g} s", flush=True)
    found = asyncio.run(soak(seconds))
    for problem in found:
        print(f"soak: {problem}", file=sys.stderr, flush=True)
    print("soak: FAILED" if found else "soak: nothing lost, nothing doubled, nothing grew", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
