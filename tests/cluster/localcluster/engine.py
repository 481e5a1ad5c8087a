"""The container engine that clusters live in: the machine's Docker where one answers, else one of our own.

Ours runs in its own process, mount and network namespaces. That is what its promises rest on:

* *Nothing leaves the machine.* Its network namespace has one link, to this machine, and its default route leads back to
  itself, where nothing listens: a connection to an address outside is refused at once. This takes no packet filter rule
  on the machine.
* *Nothing stays behind.* With the namespaces' first process go, by the kernel's doing, the engine, every container,
  bridge, packet filter chain and mount, whether we ended it or someone killed it.
* *Nothing is stale.* No file says that the engine runs; it runs if a process is found that holds our data folder.

Owns that engine and its data folder. Knows containers only by name; what they are for is for others.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from localcluster import packages, processes, progress
from localcluster.errors import ClusterError, CommandError
from localcluster.settings import Folders, Mode

_PROGRAMS = ("containerd", "docker", "dockerd", "ip", "iptables", "nsenter", "runc", "tini", "unshare")
_RUNC_WRAPPER = Path(__file__).with_name("runc-without-sys-resource")
_CAP_SYS_RESOURCE = 24
# /run is the engine's own: its sockets, pid files and network namespaces live there and go with it.
_IN_NAMESPACE = """
mount -t tmpfs tmpfs /run
ip link set lo up
ip route add local default dev lo
exec tini -- dockerd "$@"
"""
# No name server of the machine can be reached from inside; loopback, where there is none, says so at once.
_NO_NAME_SERVER = ("--dns", "127.0.0.1")
# A range for tests of networks (RFC 2544): no address of a real network is shadowed.
_LINK_RANGE = ipaddress.ip_network("198.18.0.0/15")


class Engine(Protocol):
    """A Docker engine that answers."""

    @property
    def address(self) -> str | None:
        """Value for DOCKER_HOST; None: the docker program's own default."""
        ...

    @property
    def published_on(self) -> str | None:
        """The address on which this machine reaches ports that containers publish; None: loopback."""
        ...


def environment(engine: Engine) -> dict[str, str]:
    """Variables that point the docker program, and all that call it, at the engine."""
    return {} if engine.address is None else {"DOCKER_HOST": engine.address}


def docker(engine: Engine, *arguments: str, timeout: float = 120) -> str:
    """Calls the docker program and returns what it wrote."""
    return processes.run(["docker", *arguments], env=environment(engine), timeout=timeout)


def has_image(engine: Engine, image: str) -> bool:
    return processes.succeeds(["docker", "image", "inspect", image], env=environment(engine))


@dataclass(frozen=True, kw_only=True)
class MachineEngine:
    """The Docker engine of this machine. Never started, stopped or changed by us beyond what kind does in it."""

    address: str | None = None
    published_on: str | None = None

    def answers(self) -> bool:
        command = ["docker", "version", "--format", "{{.Server.Version}}"]
        return packages.find("docker") is not None and processes.succeeds(command, env=environment(self), timeout=10)

    def reaches_registry(self) -> bool:
        """Whether images can be pulled: one small pull, ten seconds at most."""
        image = "hello-world:latest"
        if has_image(self, image):
            return True
        with progress.step("trying the image registry, at most 10 s"):
            pulled = processes.succeeds(["docker", "pull", "--quiet", image], env=environment(self), timeout=10)
            if pulled:
                docker(self, "image", "rm", image)
        return pulled


@dataclass(frozen=True, kw_only=True)
class Link:
    """The pair of interfaces that joins this machine and an engine's network namespace."""

    name: str
    machine: str
    """This machine's address on it."""
    engine: str

    @classmethod
    def of(cls, folder: Path) -> Link:
        """Each data folder has a link of its own, so that engines of different users do not meet."""
        digest = hashlib.sha256(os.fsencode(folder)).digest()
        size = 4
        block = int.from_bytes(digest[:4], "big") % (_LINK_RANGE.num_addresses // size)
        base = _LINK_RANGE.network_address + block * size
        return cls(name="msvc-" + digest.hex()[:8], machine=str(base + 1), engine=str(base + 2))


@dataclass(frozen=True, kw_only=True)
class OwnEngine:
    """An engine that we start and stop, found again by the data folder in its command line."""

    folders: Folders

    @property
    def address(self) -> str:
        return f"unix://{self._socket}"

    @property
    def published_on(self) -> str:
        return self._link.engine

    def is_running(self) -> bool:
        return self.process_id() is not None

    def process_id(self) -> int | None:
        """The process that made the namespaces; its child is their first one.

        Its command line names our data folder, and no other one does.
        """
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                with contextlib.suppress(OSError):
                    arguments = folder.joinpath("cmdline").read_bytes().split(b"\0")
                    if arguments[0] == b"unshare" and os.fsencode(self._data) in arguments:
                        return int(folder.name)
        return None

    def has_containers(self) -> bool:
        """Whether its data holds containers, running or not: of an engine that was killed they are still there."""
        return any(self._data.joinpath("containers").glob("*"))

    def is_in_use(self) -> bool:
        """Whether a container runs. One that has ended, such as that of a build that failed, is no reason to stay up."""
        running = ["docker", "container", "ls", "--quiet"]
        return self.is_running() and bool(processes.run(running, env=environment(self), timeout=60).strip())

    def settle(self) -> None:
        """Waits until no container is in the making: it goes on even if the one who asked for it was killed.

        One that is would not be found by who removes it. At first only its folder is there, then it is listed too, and
        at the end it can be inspected.
        """

        def is_settled() -> bool:
            listed = self._list_containers()
            inspect = ["docker", "container", "inspect", *listed]
            whole = not listed or processes.succeeds(inspect, env=environment(self))
            return whole and not self._unlisted()

        processes.until(is_settled, what="the end of the making of containers", seconds=60)

    def ensure_running(self) -> None:
        """Starts the engine unless it runs and is well."""
        packages.require_root()
        packages.require(_PROGRAMS, log=self.folders.logs / "install-engine.log")
        if self.is_running():
            if self._answers(timeout=30) and self._link_is_up():
                return
            progress.say("the engine of an earlier run is not well: ending it")
            self.kill()
        with progress.step("starting a container engine"):
            self._start()

    def stop(self) -> None:
        """Ends the engine and waits until nothing of it is left."""
        outer = self.process_id()
        if outer is None:
            self._remove_traces()
            return
        with progress.step("stopping the container engine"):
            inner = _only_child(outer)
            stopped = inner is not None and processes.end_foreign(inner, patience=8)
            if not stopped:
                progress.say("the engine does not stop by itself: killing it")
            self.kill()

    def kill(self) -> None:
        """Ends the engine as a power cut would; its data stays."""
        outer = self.process_id()
        if outer is not None:
            inner = _only_child(outer)
            # The first process of a process namespace takes all others with it. The outer one ends after it.
            for pid in filter(None, (inner, outer)):
                if not processes.end_foreign(pid, patience=20, kill=True):
                    raise ClusterError(f"process {pid} of the container engine does not end, even killed")
        self._remove_traces()

    @property
    def _socket(self) -> Path:
        return self.folders.engine / "docker.sock"

    @property
    def _data(self) -> Path:
        return self.folders.engine / "data"

    @property
    def _link(self) -> Link:
        return Link.of(self.folders.engine)

    @property
    def _cgroup(self) -> str:
        return self._link.name

    def _start(self) -> None:
        self.folders.engine.mkdir(parents=True, exist_ok=True)
        self._remove_traces()
        log = self.folders.logs / "engine.log"
        log.unlink(missing_ok=True)
        flags = ["--data-root", str(self._data), "--host", self.address, "--cgroup-parent", f"/{self._cgroup}"]
        flags += ["--exec-opt", "native.cgroupdriver=cgroupfs", *_NO_NAME_SERVER, *self._runtime_flags()]
        namespaces = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        process = processes.start_detached(
            ["unshare", *namespaces, "--", "sh", "-euc", _IN_NAMESPACE, "sh", *flags], log=log
        )
        try:
            self._set_up_link(process.pid)

            def is_there() -> bool:
                if process.poll() is not None:
                    raise ClusterError(f"the container engine ended at once; {log} says why")
                return self._answers(timeout=5)

            processes.until(is_there, what=f"an answer of the container engine (its log is {log})", seconds=60)
            # It was killed while it made these, and can do nothing with them.
            for half_made in self._unlisted():
                shutil.rmtree(half_made)
        except BaseException:
            self.kill()
            raise

    def _runtime_flags(self) -> list[str]:
        if _may_raise_limits():
            return []
        wrapper = self.folders.engine / _RUNC_WRAPPER.name
        shutil.copyfile(_RUNC_WRAPPER, wrapper)
        wrapper.chmod(0o755)
        return ["--add-runtime", f"reduced={wrapper}", "--default-runtime", "reduced"]

    def _unlisted(self) -> list[Path]:
        """Folders of containers that the engine does not speak of."""
        folders = list(self._data.joinpath("containers").glob("*"))
        listed = self._list_containers()
        return [folder for folder in folders if folder.name not in listed]

    def _list_containers(self) -> list[str]:
        return docker(self, "ps", "--all", "--quiet", "--no-trunc").split()

    def _set_up_link(self, outer: int) -> None:
        own_network = os.readlink("/proc/self/ns/net")

        def has_namespace() -> bool:
            inner = _only_child(outer)
            with contextlib.suppress(OSError):
                return inner is not None and os.readlink(f"/proc/{inner}/ns/net") != own_network
            return False

        processes.until(has_namespace, what="the engine's network namespace", seconds=10, pause=0.01)
        inner = _only_child(outer)
        link = self._link
        processes.run(["ip", "link", "add", link.name, "type", "veth", "peer", "name", "machine", "netns", str(inner)])
        processes.run(["ip", "address", "add", f"{link.machine}/30", "dev", link.name])
        processes.run(["ip", "link", "set", link.name, "up"])
        inside = ["nsenter", f"--net=/proc/{inner}/ns/net", "ip"]
        processes.run([*inside, "address", "add", f"{link.engine}/30", "dev", "machine"])
        processes.run([*inside, "link", "set", "machine", "up"])

    def _link_is_up(self) -> bool:
        return f"inet {self._link.machine}/30" in processes.run(["ip", "-4", "address", "show"])

    def _answers(self, *, timeout: float) -> bool:
        return self._socket.is_socket() and processes.succeeds(
            ["docker", "version"], env=environment(self), timeout=timeout
        )

    def _remove_traces(self) -> None:
        """What the kernel leaves to us, or removes only a little later."""
        self._socket.unlink(missing_ok=True)
        with contextlib.suppress(CommandError):
            processes.run(["ip", "link", "delete", self._link.name])
        for top in Path("/sys/fs/cgroup").glob(f"*/{self._cgroup}"):
            _remove_cgroup(top)
        _remove_cgroup(Path("/sys/fs/cgroup") / self._cgroup)


def find_engine(folders: Folders, mode: Mode) -> MachineEngine | OwnEngine:
    """The engine to use. Does not start ours.

    Raises:
        ClusterError: Docker was asked for and does not answer.
    """
    own = OwnEngine(folders=folders)
    machine = MachineEngine(address=os.environ.get("DOCKER_HOST"))
    if mode == "local" or os.environ.get("DOCKER_HOST") == own.address:
        return own
    if machine.answers():
        return machine
    if mode == "docker":
        raise ClusterError("MODELSERVICE_CLUSTER=docker, but no Docker engine answers: start it, or unset the variable")
    return own


def _only_child(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else None
    return None


def _may_raise_limits(status: Path = Path("/proc/self/status")) -> bool:
    """Whether CAP_SYS_RESOURCE can be had at all; privileged containers ask for every capability."""
    fields: Mapping[str, str] = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
    return bool(int(fields["CapBnd"], 16) >> _CAP_SYS_RESOURCE & 1)


def _remove_cgroup(top: Path) -> None:
    """Removes an empty control group and those in it: the engine's are no one's after it."""
    if top.is_dir():
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
