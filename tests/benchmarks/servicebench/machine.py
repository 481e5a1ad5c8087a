"""The machine: its name for the report, one core for what is measured and one for the rest, and who else used it meanwhile.

Owns the reading of /proc. Foreign CPU is what all cores did minus what this process and its children did: a sample taken
while somebody compiled is no sample.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil
from servicebench.failure import BenchError


@dataclass(frozen=True, kw_only=True)
class Cores:
    """`subject` is for the process that is measured alone; `others` for the load generator, the model server and us."""

    subject: int
    others: int


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Seconds of CPU since the machine and we began. `busy` counts programs and the hypervisor's theft, not interrupts."""

    busy: float
    whole: float
    own: float

    def foreign_percent(self, before: Usage) -> float:
        """The share of the machine that others used since `before`."""
        whole = self.whole - before.whole
        foreign = (self.busy - before.busy) - (self.own - before.own)
        return 100.0 * max(0.0, foreign) / whole if whole > 0 else 0.0


def claim() -> Cores:
    """Two cores; this process moves to the second one, and what it starts follows it unless told otherwise.

    Raises:
        BenchError: there are fewer than two.
    """
    if not hasattr(os, "sched_getaffinity"):
        raise BenchError("benchmarks need Linux")
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        raise BenchError("benchmarks need two CPU cores: one for what is measured, one for what loads it")
    cores = Cores(subject=available[1], others=available[0])
    os.sched_setaffinity(0, {cores.others})
    return cores


def usage() -> Usage:
    """Now."""
    busy, whole = parse_stat(Path("/proc/stat").read_text(), os.sysconf("SC_CLK_TCK"))
    this = psutil.Process()
    times = this.cpu_times()
    own = times.user + times.system + times.children_user + times.children_system
    for child in this.children(recursive=True):
        own += cpu_seconds(child.pid)
    return Usage(busy=busy, whole=whole, own=own)


def parse_stat(text: str, ticks: int) -> tuple[float, float]:
    """Busy and whole seconds from the first line of /proc/stat: user nice system idle iowait irq softirq steal …"""
    user, nice, system, idle, iowait, irq, softirq, steal = (int(field) / ticks for field in text.split()[1:9])
    busy = user + nice + system + steal
    return busy, busy + idle + iowait + irq + softirq


def cpu_seconds(pid: int) -> float:
    """CPU that a process used so far; 0 if it is gone."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def resident_megabytes(pid: int) -> float:
    """What the process holds in memory, in units of a million bytes."""
    return float(psutil.Process(pid).memory_info().rss) / 1e6


def describe() -> str:
    """The machine in words: nothing that would name it."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith(("model name", "Model"))
        ),
        platform.machine(),
    )
    kernel = ".".join(platform.release().split("-")[0].split(".")[:2])
    return f"{model}, {os.cpu_count()} cores, Linux {kernel}, Python {platform.python_version()}"
