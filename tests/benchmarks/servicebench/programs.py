"""Makes sure that the two programs that do not come with Python are there: wrk, which makes the load, and nginx.

Owns their installation. nginx is installed as a program and not as a service: nothing listens afterwards that did not before.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servicebench.failure import BenchError

WHY = {
    "wrk": "it makes the load; a generator in Python would be slower than what it measures",
    "nginx": "what a proxy in C costs is the floor to compare with",
    "taskset": "each side of a measurement gets a core of its own",
    "setpriv": "no process outlives the benchmark",
}
PACKAGE = {"taskset": "util-linux", "setpriv": "util-linux"}
_SYSTEM = "/usr/local/sbin:/usr/sbin:/sbin"
_POLICY = Path("/usr/sbin/policy-rc.d")


def require(*names: str) -> None:
    """Install what is missing, saying what and why.

    Raises:
        BenchError: something is missing and cannot be installed; the text has the command to get it.
    """
    missing = [name for name in names if find(name) is None]
    if not missing:
        return
    packages = sorted({PACKAGE.get(name, name) for name in missing})
    command = f"apt-get install --no-install-recommends {' '.join(packages)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise BenchError(f"{' and '.join(missing)} missing; get them as root on Debian or Ubuntu: {command}")
    for name in missing:
        print(f"==> installing {name} by apt: {WHY[name]}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with no_services():
        for arguments in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", *packages]):
            done = subprocess.run(["apt-get", *arguments], env=environment, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise BenchError(f"{command} failed: {done.stderr.strip()[-500:]}")


def find(name: str) -> str | None:
    """Where the program is, if it is."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SYSTEM}")


@contextmanager
def no_services() -> Iterator[None]:
    """Debian starts what it installs unless this file says no; one that is there already is left as it is."""
    ours = not _POLICY.exists()
    if ours:
        _POLICY.write_text("#!/bin/sh\nexit 101\n")
        _POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            _POLICY.unlink(missing_ok=True)
