"""Makes sure that programs of the operating system are there. The only place that installs packages."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from localcluster import processes, progress
from localcluster.errors import ClusterError

# Program: the Debian package that has it, or several.
PACKAGE_OF = {
    "containerd": "containerd",
    "ctr": "containerd",
    "debootstrap": "debootstrap debian-archive-keyring",
    "docker": "docker.io",
    "dockerd": "docker.io",
    "g++": "g++",
    "ip": "iproute2",
    "iptables": "iptables",
    "nsenter": "util-linux",
    "runc": "runc",
    "tini": "tini",
    "unshare": "util-linux",
}
# Some users' PATH lacks the folders of programs for root.
_SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def find(program: str) -> str | None:
    """Where ``program`` is, or None."""
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), *_SYSTEM_FOLDERS]))


def require(programs: Iterable[str], *, log: Path) -> None:
    """Installs what is missing, where root and apt are there.

    Raises:
        ClusterError: Something is missing and cannot be installed; names it and the command to get it.
    """
    absent = [program for program in programs if find(program) is None]
    if not absent:
        return
    command = _install(sorted({package for program in absent for package in PACKAGE_OF[program].split()}), log)
    still_absent = [program for program in absent if find(program) is None]
    if still_absent:
        raise ClusterError(f"{', '.join(still_absent)}: not there after `{command}`; install it and put it on PATH")


def require_libpython(*, log: Path) -> None:
    """Installs Python's shared library where the one that runs this came without it: Triton's Python models embed it.

    Raises:
        ClusterError: It is missing and cannot be installed.
    """
    name = f"libpython{sys.version_info.major}.{sys.version_info.minor}"
    file = f"{name}.so.1.0"
    folders = [Path(str(sysconfig.get_config_var("LIBDIR"))), *Path("/usr/lib").glob("*-linux-gnu")]
    if not any((folder / file).exists() for folder in folders):
        _install([name], log)


def _install(missing: list[str], log: Path) -> str:
    """Installs packages; the command by which a person would."""
    command = "apt-get install --no-install-recommends " + " ".join(missing)
    if os.geteuid() != 0 or find("apt-get") is None:
        raise ClusterError(f"missing programs; get them as root on Debian or Ubuntu with: {command}")
    with progress.step("installing " + ", ".join(missing)) as step:
        environment = {"DEBIAN_FRONTEND": "noninteractive"}
        processes.run_watched(["apt-get", "update", "-q"], step=step, log=log, env=environment)
        install = ["apt-get", "install", "-q", "-y", "--no-install-recommends", *missing]
        processes.run_watched(install, step=step, log=log, env=environment)
    return command


def require_go() -> str:
    """Where Go is. Debian's is too old for Kubernetes, so it is never installed from there."""
    go = find("go") or find("/usr/local/go/bin/go")
    if go is None:
        raise ClusterError(
            "Go is missing: install 1.24 or newer as https://go.dev/doc/install says, and put it on PATH"
        )
    return go


def require_root() -> None:
    """Everything that makes namespaces, chroots or an engine of our own needs root."""
    if os.geteuid() != 0:
        raise ClusterError(
            "no Docker engine answers, and starting one of our own needs root: run this as root, or start Docker"
        )
