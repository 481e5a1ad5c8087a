"""What a scrape of the adapter's metrics costs the calls that are under way, with two hundred tools.

Owns the benchmark `adapter-scrape`. Every tool is called, so every one has its histograms; the same load runs with a scraper
that asks each second, as OpenMetrics, and without one. What was kept is outdated by then, so every scrape is rendered.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from servicebench import machine, wire, wrk
from servicebench.children import Child
from servicebench.failure import BenchError
from servicebench.machine import Cores
from servicebench.programs import require
from servicebench.report import Metric, Report, median
from servicebench.sampling import collect
from servicebench.subjects import ADAPTER, SERVERS, Running, Subject, running, start_adapter
from servicebench.wire import Wire
from servicebench.wrk import Load

from modelservice_api.adapter_config import AdapterConfig, ServerConfig, ToolsConfig

NAME = "adapter-scrape"
TOOLS = 200
CONNECTIONS = (1, 16)
SCRAPE_EVERY = 1.0
GOAL = 1.2
_ACCEPT = {"Accept": "application/openmetrics-text; version=1.0.0"}

Key = tuple[int, bool]


@dataclass(kw_only=True)
class Scrapes:
    """What a scraper saw."""

    count: int = 0
    size: int = 0


def tool_names() -> list[str]:
    """The names of all tools."""
    return [wire.TOOL, *(f"{wire.TOOL}{number}" for number in range(1, TOOLS))]


def every_tool() -> Wire:
    """One call of each tool in turn. The older revision, for it names the tool in the body alone."""
    one = wire.older()
    message = json.loads(one.body)
    bodies = [json.dumps({**message, "params": {**message["params"], "name": name}}) for name in tool_names()]
    return replace(one, body="\n".join(bodies).encode())


def run(cores: Cores, *, quick: bool) -> Report:
    """The same load with and without a scraper, in turn."""
    require("taskset", "setpriv", "wrk")
    rounds, seconds = (1, 2) if quick else (5, 5)
    config = AdapterConfig(
        server=ServerConfig(name="bench", version="1"),
        tools=ToolsConfig(filter=tuple(tool_names())),  # so many are published only where they are chosen by name
    )
    subject = Subject(name=ADAPTER, wire=wire.older(), start=partial(start_adapter, config=config))
    asked = every_tool()
    scrapes: list[Scrapes] = []
    with ExitStack() as stack:
        backend = stack.enter_context(model_server(cores))
        started = stack.enter_context(running(subject, backend.port, cores))
        started.child.read_on()
        subject.wire.verify(started.port, ADAPTER)
        wrk.run(asked, started.port, subject=ADAPTER, connections=CONNECTIONS[-1], seconds=1)  # each has been called

        def take(key: Key) -> tuple[Load, float]:
            connections, scraped = key
            before = machine.usage()
            with ExitStack() as scraping:
                if scraped:
                    scrapes.append(scraping.enter_context(scraper(started.admin_port)))
                load = wrk.run(asked, started.port, subject=ADAPTER, connections=connections, seconds=seconds)
            return load, machine.usage().foreign_percent(before)

        keys = [(connections, scraped) for connections in CONNECTIONS for scraped in (False, True)]
        samples = collect(keys, take, rounds=rounds)
        subject.wire.verify(started.port, ADAPTER)
    loads = samples.by_key
    compared = {
        f"c{connections} {'scraped' if scraped else 'alone'}": {
            "p50_us": median(load.p50 for load in loads[connections, scraped]),
            "p99_us": median(load.p99 for load in loads[connections, scraped]),
            "calls_per_s": median(load.per_second for load in loads[connections, scraped]),
        }
        for connections, scraped in keys
    }
    metrics = [
        Metric(
            metric=f"p99_scraped_over_alone_c{connections}",
            value=compared[f"c{connections} scraped"]["p99_us"] / compared[f"c{connections} alone"]["p99_us"],
            unit="times",
            goal=GOAL,
            better="lower",
        )
        for connections in CONNECTIONS
    ]
    metrics += [
        Metric(metric="scrapes", value=sum(each.count for each in scrapes), unit="scrapes", goal=None, better="higher"),
        Metric(metric="size", value=max(each.size for each in scrapes) / 1e6, unit="MB", goal=None, better="lower"),
    ]
    return Report(
        name=NAME,
        machine=machine.describe(),
        rounds=rounds,
        metrics=tuple(metrics),
        compared=compared,
        discarded=samples.discarded,
        quiet=samples.quiet,
    )


@contextmanager
def model_server(cores: Cores) -> Iterator[Running]:
    """The model server of all benchmarks, with so many operations."""
    command = [sys.executable, str(SERVERS / "model_server.py"), str(TOOLS - 1)]
    with Child("model-server", command, core=cores.others) as child:
        yield Running(child=child, port=int(child.wait_for(str.isdigit)))


@contextmanager
def scraper(admin_port: int) -> Iterator[Scrapes]:
    """Scrapes each second for the time of the block.

    Raises:
        BenchError: a scrape failed, or does not hold every tool.
    """
    over, seen, failures = threading.Event(), Scrapes(), list[str]()

    def scrape() -> None:
        while not over.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", admin_port, timeout=10)
            try:
                connection.request("GET", "/metrics", headers=_ACCEPT)
                body = connection.getresponse().read()
            except OSError as error:
                failures.append(str(error))
                return
            finally:
                connection.close()
            series = body.count(b'modelservice_backend_duration_seconds_count{tool="predict')
            if series != TOOLS:
                failures.append(f"{series} tools in a scrape, not {TOOLS}")
            seen.count += 1
            seen.size = max(seen.size, len(body))
            over.wait(SCRAPE_EVERY)

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
    if failures:
        raise BenchError(f"{NAME}: {failures[0]}")
