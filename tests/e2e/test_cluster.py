"""The cluster itself: what tests and how-tos rely on when they start one."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from cluster_fixtures import ClusterAccess, access_to
from localcluster import processes, settings
from localcluster.cluster import Cluster
from localcluster.engine import Link, MachineEngine, OwnEngine
from localcluster.settings import ClusterOptions, Folders

COMMAND = (sys.executable, "-m", "localcluster")

only_our_own_engine = pytest.mark.skipif(
    os.environ.get("CLUSTER") == "current"
    or os.geteuid() != 0
    or (settings.read_mode() != "local" and MachineEngine().answers()),
    reason="promised, and to be seen, only where the engine is ours",
)


def pod(name: str, *command: str, labels: dict[str, str] | None = None) -> dict[str, object]:
    """A pod of the base image."""
    container = {"name": "main", "image": settings.BASE_IMAGE, "imagePullPolicy": "IfNotPresent", "command": command}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels or {}}, "spec": spec}


def create(cluster: ClusterAccess, *objects: dict[str, object]) -> None:
    """Creates the objects and waits for every pod among them."""
    listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    cluster.kubectl("apply", "--filename", "-", input=json.dumps(listed))
    names = [f"pod/{o['metadata']['name']}" for o in objects if o["kind"] == "Pod"]  # type: ignore[index]
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=90s", *names)


@pytest.fixture(scope="module")
def client(cluster: ClusterAccess) -> Iterator[ClusterAccess]:
    """The cluster with a pod ``client`` in it, which runs Python."""
    cluster.load([settings.BASE_IMAGE])
    create(cluster, pod("client", "sleep", "infinity"))
    yield cluster
    cluster.kubectl("delete", "pod", "client", "--wait=false")


def run_in_pod(cluster: ClusterAccess, program: str, *arguments: str) -> str:
    """What a Python program prints in the pod ``client``."""
    return cluster.kubectl("exec", "client", "--", "python3", "-c", program, *arguments).strip()


class Listener:
    """Hears every packet on every network interface of this machine, and remembers whether one held ``token``."""

    def __init__(self, token: bytes) -> None:
        self.heard = threading.Event()
        self._token = token
        every_protocol = 3
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(every_protocol))
        self._socket.settimeout(0.2)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while not self._over.is_set():
            try:
                if self._token in self._socket.recv(65536):
                    self.heard.set()
            except TimeoutError:
                continue


SEND_OUT = """
import socket, sys
token, outside = sys.argv[1], ("192.0.2.1", 9)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
    datagrams.sendto(token.encode(), outside)
try:
    with socket.create_connection(outside, timeout=10) as connection:
        connection.sendall(token.encode())
    print("connected")
except ConnectionRefusedError:
    print("refused")
try:
    print(socket.gethostbyname(token + ".example.com"))
except socket.gaierror:
    print("no such name")
"""


@only_our_own_engine
def test_nothing_that_a_pod_sends_to_an_address_or_name_outside_is_seen_on_the_machines_network(
    client: ClusterAccess,
) -> None:
    token = secrets.token_hex(12)
    with Listener(token.encode()) as listener:
        answers = run_in_pod(client, SEND_OUT, token).split("\n")
        assert not listener.heard.is_set()
        # The same token on loopback shows that the listener would have heard it.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.sendto(token.encode(), ("127.0.0.1", 9))
        assert listener.heard.wait(5)
    assert answers == ["refused", "no such name"]


SERVE_OWN_NAME = """
import http.server, socket
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(socket.gethostname().encode())
http.server.ThreadingHTTPServer(("", 8000), Handler).serve_forever()
"""
CALL_UNTIL_BOTH_ANSWERED = """
import sys, time, urllib.error, urllib.request
seen = set()
for _ in range(200):
    try:
        seen.add(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())
    except urllib.error.URLError:
        time.sleep(0.1)  # a node's rules for a Service come after its pods are ready, and nothing tells when
    if len(seen) == 2: break
print(*sorted(seen))
"""


def server(name: str) -> dict[str, object]:
    """A pod behind the Service ``servers`` that answers with its name once it can."""
    made = pod(name, "python3", "-c", SERVE_OWN_NAME, labels={"app": "servers"})
    probe = {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1}
    made["spec"]["containers"][0]["readinessProbe"] = probe  # type: ignore[index]
    return made


def service() -> dict[str, object]:
    spec = {"selector": {"app": "servers"}, "ports": [{"port": 80, "targetPort": 8000}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "servers"}, "spec": spec}


def test_a_service_with_two_endpoints_is_found_by_name_and_answered_by_both(client: ClusterAccess) -> None:
    create(client, service(), server("server-a"), server("server-b"))
    assert run_in_pod(client, CALL_UNTIL_BOTH_ANSWERED, "http://servers.default.svc/") == "server-a server-b"
    client.kubectl("delete", "service/servers", "pod/server-a", "pod/server-b", "--wait=false")


@pytest.mark.skipif(os.environ.get("CLUSTER") == "current", reason="makes a cluster of its own")
def test_a_second_cluster_with_two_nodes_and_pretend_gpus_runs_beside_the_first(cluster: ClusterAccess) -> None:
    second = Cluster(folders=settings.read_folders(), name="modelservice-second")
    try:
        second.up(ClusterOptions(name=second.name, nodes=2, gpus=4))
        access = access_to(second)
        nodes = json.loads(access.kubectl("get", "nodes", "--output", "json"))["items"]
        gpus = {node["metadata"]["name"]: node["status"]["allocatable"].get("nvidia.com/gpu") for node in nodes}
        assert gpus == {"modelservice-second-control-plane": None, "modelservice-second-worker": "4"}
        assert cluster.kubectl("get", "--raw", "/readyz") == "ok"
    finally:
        second.down()


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a cluster could leave on this machine."""

    links: frozenset[str]
    packet_filter: str
    mounts: frozenset[str]
    control_groups: frozenset[str]


def observe(folders: Folders) -> Machine:
    """The machine as it is now. Of links and control groups only ours, for others come and go."""
    name = Link.of(folders.engine).name
    addresses = processes.run(["ip", "-oneline", "link"])
    bridges = processes.run(["ip", "-oneline", "link", "show", "type", "bridge"])
    return Machine(
        links=frozenset([*(line for line in addresses.splitlines() if name in line), *bridges.splitlines()]),
        packet_filter=processes.run(["iptables-save"]) + processes.run(["ip6tables-save"]),
        mounts=frozenset(Path("/proc/self/mounts").read_text().splitlines()),
        control_groups=frozenset(str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{name}")),
    )


@pytest.fixture
def own_folders() -> Iterator[Folders]:
    """Folders apart from the user's, with the same cache: engines that are killed here are nobody else's."""
    # Not tmp_path: it is too long for sockets, and an engine's data is nothing to keep for later.
    with tempfile.TemporaryDirectory(prefix="modelservice-") as home:
        folders = settings.read_folders({"XDG_CACHE_HOME": home})
        folders.root.mkdir(parents=True)
        cache = settings.read_folders().cache
        cache.mkdir(parents=True, exist_ok=True)
        folders.cache.symlink_to(cache)
        try:
            yield folders
        finally:
            OwnEngine(folders=folders).kill()


@only_our_own_engine
def test_after_up_and_the_engine_were_killed_up_works_again_and_down_leaves_nothing(own_folders: Folders) -> None:
    before = observe(own_folders)
    own = OwnEngine(folders=own_folders)
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(own_folders.root.parents[1]),
        "MODELSERVICE_CLUSTER": "local",
        "PYTHONPATH": str(settings.GO_PROGRAMS.parent),
    }

    def localcluster(*arguments: str) -> str:
        return processes.run([*COMMAND, *arguments], env=environment, timeout=1200)

    up = subprocess.Popen([*COMMAND, "up", "--name", "killed"], env=environment)
    try:
        # The node's container is there, Kubernetes in it is not: the middle.
        processes.until(own.has_containers, what="the node's container", seconds=1200)
    finally:
        up.kill()
        up.wait()
    assert own.is_running()

    kubeconfig = Path(localcluster("up", "--name", "killed").splitlines()[-1])
    kubectl = Cluster(folders=own_folders, name="killed").programs / "kubectl"
    nodes = processes.run([kubectl, "--kubeconfig", kubeconfig, "get", "nodes", "--output", "name"])
    assert nodes.strip() == "node/killed-control-plane"

    inside = everyone_in(own)
    assert len(inside) > 10
    first = inside[0]
    os.kill(first, signal.SIGKILL)
    processes.until(lambda: not own.is_running(), what="the end of the engine", seconds=20)
    assert own.has_containers()

    localcluster("down", "--name", "killed")
    assert not own.is_running()
    assert not own.has_containers()
    assert own_folders.clusters() == []
    assert observe(own_folders) == before
    assert [pid for pid in inside if is_alive(pid)] == []


def everyone_in(own: OwnEngine) -> list[int]:
    """The processes in the engine's namespaces, its first one first."""
    outer = own.process_id()
    assert outer is not None
    found, todo = [], [outer]
    while todo:
        pid = todo.pop(0)
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            todo += [int(child) for child in task.read_text().split()]
        found.append(pid)
    return found[1:]


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that only waits for its parent to notice its end does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
