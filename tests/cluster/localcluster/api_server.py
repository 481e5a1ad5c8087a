"""A plain Kubernetes API server on loopback: etcd, kube-apiserver, kube-controller-manager; no node and no container.

Admission, CEL, server-side apply, RBAC, garbage collection, namespaces, service accounts and ReplicaSets are the real
ones; pods stay pending. Needs no root. Everything lies in one folder that goes at the end, and every process is
killed by the kernel if this one ends without saying so.

    with ApiServer() as server:
        subprocess.run(["kubectl", "--kubeconfig", server.kubeconfig, "get", "namespaces"])
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import http.client
import json
import os
import secrets
import shutil
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from localcluster import cache, processes, settings
from localcluster.errors import ClusterError
from localcluster.programs import Programs

_LOOPBACK = "127.0.0.1"
_READY_SECONDS = 60
# What the namespace and service account controllers make; a client may count on it from the first request.
_DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"
# Each of these watches what only nodes, clouds or volumes have, and would cost time and memory for nothing.
_NEEDLESS_CONTROLLERS = (
    "persistentvolume-attach-detach-controller",
    "node-ipam-controller",
    "node-lifecycle-controller",
    "node-route-controller",
    "cloud-node-lifecycle-controller",
    "service-lb-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-expander-controller",
    "ttl-controller",
)


class ApiServer:
    """Runs while its ``with`` block does."""

    def __init__(self, *, kubernetes: str | None = None, api_server_flags: Sequence[str] = ()) -> None:
        """Starts nothing yet.

        Args:
            kubernetes: Version; None: the pinned one.
            api_server_flags: More flags for kube-apiserver, such as ``--feature-gates=…``.
        """
        self._kubernetes = kubernetes
        self._api_server_flags = tuple(api_server_flags)
        self._running: list[subprocess.Popen[bytes]] = []
        self._folder = Path()
        self._in_use = -1
        self._token = ""
        self.url = ""
        """Address, once it runs."""

    @property
    def kubeconfig(self) -> Path:
        """Configuration of a client that may do everything (group ``system:masters``)."""
        return self._folder / "kubeconfig"

    @property
    def log_folder(self) -> Path:
        return self._folder / "logs"

    @property
    def process_ids(self) -> list[int]:
        """Of etcd, kube-apiserver and kube-controller-manager."""
        return [process.pid for process in self._running]

    def __enter__(self) -> Self:
        folders = settings.read_folders()
        programs = Programs(folders=folders).kube(self._kubernetes)
        self._folder, self._in_use = _claim_folder(folders.root / "api-servers")
        self._token = secrets.token_hex(16)
        try:
            self._start(programs)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def _start(self, programs: Path) -> None:
        etcd_port, etcd_peer_port, api_port, controller_port = free_ports(4)
        self.url = f"https://{_LOOPBACK}:{api_port}"
        keys = self._folder / "keys"
        tokens = self._folder / "tokens.csv"
        tokens.write_text(f'{self._token},admin,admin,"system:masters"\n')
        tokens.chmod(0o600)
        etcd = f"http://{_LOOPBACK}:{etcd_port}"
        etcd_peer = f"http://{_LOOPBACK}:{etcd_peer_port}"
        # fmt: off
        self._run(programs / "etcd", [
            f"--data-dir={self._folder / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn",
            f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={etcd_peer}", f"--initial-advertise-peer-urls={etcd_peer}",
            f"--initial-cluster=default={etcd_peer}",
            # It elects itself: no one else is there to wait for.
            "--heartbeat-interval=10", "--election-timeout=100",
        ])
        processes.run([programs / "kubeadm", "init", "phase", "certs", "sa", "--cert-dir", keys])
        self._run(programs / "kube-apiserver", [
            f"--etcd-servers={etcd}", f"--bind-address={_LOOPBACK}", f"--secure-port={api_port}",
            f"--advertise-address={_LOOPBACK}", "--endpoint-reconciler-type=none", f"--cert-dir={keys}",
            "--enable-priority-and-fairness=false",
            "--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=RBAC", f"--token-auth-file={tokens}",
            "--allow-privileged", "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={keys / 'sa.pub'}", f"--service-account-signing-key-file={keys / 'sa.key'}",
            *self._api_server_flags,
        ])
        # fmt: on
        certificate = keys / "apiserver.crt"
        # Sooner, the controllers would be refused once and wait longer than this to try again.
        self._await(lambda: _answers(api_port, certificate, "/readyz", self._token), "kube-apiserver")
        self.kubeconfig.write_text(json.dumps(_kubeconfig(self.url, certificate, self._token)))
        self.kubeconfig.chmod(0o600)
        # fmt: off
        self._run(programs / "kube-controller-manager", [
            f"--kubeconfig={self.kubeconfig}", f"--authentication-kubeconfig={self.kubeconfig}",
            f"--authorization-kubeconfig={self.kubeconfig}", f"--bind-address={_LOOPBACK}",
            f"--secure-port={controller_port}", f"--cert-dir={self._folder / 'controller-keys'}", "--leader-elect=false",
            f"--root-ca-file={certificate}", f"--service-account-private-key-file={keys / 'sa.key'}",
            # Its controllers share the administrator's identity: an account for each would take seconds to make.
            "--kube-api-qps=200", "--kube-api-burst=400",
            "--controllers=" + ",".join(["*", *(f"-{name}" for name in _NEEDLESS_CONTROLLERS)]),
        ])
        # fmt: on
        self._await(
            lambda: _answers(api_port, certificate, _DEFAULT_ACCOUNT, self._token), "the service account controller"
        )

    def _run(self, program: Path, flags: Sequence[str]) -> None:
        log = self.log_folder / f"{program.name}.log"
        # Starting makes much garbage; collecting it less often spares a fifth of the time.
        self._running.append(processes.start([program, *flags], log=log, env={"GOGC": "400"}))

    def _await(self, check: processes.Check, what: str) -> None:
        def is_there() -> bool:
            for process in self._running:
                if process.poll() is not None:
                    name = os.path.basename(str(process.args[0]))  # type: ignore[index]
                    log = (self.log_folder / f"{name}.log").read_text().splitlines()[-15:]
                    raise ClusterError("\n".join([f"{name} ended with code {process.returncode}:", *log]))
            return check()

        processes.until(is_there, what=f"an answer of {what} at {self.url}", seconds=_READY_SECONDS, pause=0.1)

    def _end(self) -> None:
        # Killed, for none of them has anything to save.
        for process in self._running:
            process.kill()
        for process in self._running:
            process.wait()
        self._running.clear()
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._in_use)


def _claim_folder(parent: Path) -> tuple[Path, int]:
    """A new folder, and the handle that holds it; those that no one holds any more, for their owner was killed, go."""
    with cache.lock(parent.with_suffix(".lock"), what="another API server to start"):
        parent.mkdir(parents=True, exist_ok=True)
        for folder in parent.iterdir():
            handle = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            except BlockingIOError:
                pass
            finally:
                os.close(handle)
        claimed = Path(tempfile.mkdtemp(dir=parent))
        handle = os.open(claimed, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
        return claimed, handle


def free_ports(count: int) -> list[int]:
    """Ports of loopback that were free just now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((_LOOPBACK, 0))
        return [one.getsockname()[1] for one in sockets]


def _answers(port: int, certificate: Path, path: str, token: str) -> bool:
    """Whether a GET of ``path`` has the answer 200."""
    try:
        context = ssl.create_default_context(cafile=str(certificate))
        connection = http.client.HTTPSConnection(_LOOPBACK, port, context=context, timeout=5)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False


def _kubeconfig(url: str, certificate: Path, token: str) -> dict[str, object]:
    authority = base64.b64encode(certificate.read_bytes()).decode()
    name = "api-server"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority-data": authority}}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "admin"}}],
        "current-context": name,
    }
