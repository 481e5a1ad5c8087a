"""A namespace of a real cluster as a user with kubectl and an MCP client sees it.

Owns kubectl's calls and the way from this machine to a Service (`kubectl port-forward`). Waits are kubectl's own
(`wait`, `rollout status`) or a watch, each with a time limit.
"""

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster_fixtures import ClusterAccess

_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")


@dataclass(frozen=True, kw_only=True)
class Namespace:
    """One namespace."""

    cluster: ClusterAccess
    name: str

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """kubectl in this namespace; what it printed."""
        return self.cluster.kubectl("--namespace", self.name, *arguments, input=stdin)

    def apply(self, *documents: Mapping[str, Any], server_side: bool = False) -> None:
        """`kubectl apply`, client-side unless told otherwise."""
        flags = ["--server-side"] if server_side else []
        self.kubectl("apply", *flags, "-f", "-", stdin=_as_list(documents))

    def replace(self, *documents: Mapping[str, Any]) -> None:
        """`kubectl replace`: a PUT."""
        self.kubectl("replace", "-f", "-", stdin=_as_list(documents))

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """An object with its managed fields."""
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, "-o", "json", "--show-managed-fields"))
        return found

    def find_all(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Objects of a kind."""
        flags = ["-l", selector] if selector else []
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, *flags, "-o", "json"))["items"]
        return found

    def exists(self, kind: str, name: str) -> bool:
        """Whether there is such an object."""
        return bool(self.kubectl("get", kind, name, "--ignore-not-found", "-o", "name").strip())

    def wait_for_condition(self, target: str, condition: str, seconds: int = 120) -> None:
        """`kubectl wait --for=condition=…`."""
        self.kubectl("wait", target, f"--for=condition={condition}", f"--timeout={seconds}s")

    def wait_for_reason(self, name: str, condition: str, reason: str, seconds: int = 60) -> str:
        """Waits until a ModelService's condition has a reason; the condition's message."""

        def matching(found: dict[str, Any]) -> dict[str, Any] | None:
            conditions = (found.get("status") or {}).get("conditions") or []
            return next((each for each in conditions if each["type"] == condition and each["reason"] == reason), None)

        met = self.watch("modelservice", name, lambda found: matching(found) is not None, seconds)
        found = matching(met)
        assert found is not None
        return str(found["message"])

    def wait_for_rollout(self, workload: str, seconds: int = 180) -> None:
        """`kubectl rollout status`."""
        self.kubectl("rollout", "status", workload, f"--timeout={seconds}s")

    def wait_until_gone(self, target: str, seconds: int = 60) -> None:
        """`kubectl wait --for=delete`."""
        self.kubectl("wait", target, "--for=delete", f"--timeout={seconds}s")

    def watch(
        self, kind: str, name: str, is_met: Callable[[dict[str, Any]], bool], seconds: int = 60
    ) -> dict[str, Any]:
        """Watches an object until it is as asked; the object as it then was."""
        process = subprocess.Popen(
            ["timeout", str(seconds), "kubectl", "-n", self.name, "get", kind, name, "--watch", "-o", "json"],
            env={**os.environ, **self.cluster.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        last: dict[str, Any] = {}
        try:
            assert process.stdout is not None
            for found in _json_documents(process.stdout):
                last = found
                if is_met(found):
                    return found
        finally:
            process.terminate()
            process.communicate(timeout=30)
        raise AssertionError(f"{kind} {name} did not become as asked within {seconds} s; last seen: {json.dumps(last)}")

    def wait_for_output(self, pod: str, line: str, seconds: int = 60) -> None:
        """Follows a pod's log until it says a line."""
        process = subprocess.Popen(
            ["timeout", str(seconds), "kubectl", "-n", self.name, "logs", "--follow", pod],
            env={**os.environ, **self.cluster.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert process.stdout is not None
            said = []
            for each in process.stdout:
                said.append(each)
                if each.strip() == line:
                    return
        finally:
            process.terminate()
            process.communicate(timeout=30)
        raise AssertionError(f"pod {pod} did not say {line!r} within {seconds} s, but: {''.join(said)}")

    def describe(self, kind: str, name: str) -> str:
        """`kubectl describe`."""
        return self.kubectl("describe", kind, name)

    def events_of(self, kind: str, name: str) -> list[tuple[str, str]]:
        """(reason, message) of every event on an object."""
        selector = f"involvedObject.kind={kind},involvedObject.name={name}"
        items = json.loads(self.kubectl("get", "events", "--field-selector", selector, "-o", "json"))["items"]
        return [(str(found["reason"]), str(found["message"])) for found in items]

    @contextlib.contextmanager
    def forwarded(self, target: str, port: int) -> Iterator[int]:
        """A local port that leads to a Service or pod, by `kubectl port-forward`."""
        process = subprocess.Popen(
            ["kubectl", "-n", self.name, "port-forward", "--address", "127.0.0.1", target, f":{port}"],
            env={**os.environ, **self.cluster.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            found = _FORWARDING.search(said)
            assert found is not None, f"port-forward to {target}: {said}{process.stdout.read()}"
            yield int(found[1])
        finally:
            process.terminate()
            process.communicate(timeout=30)


def _as_list(documents: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})


def _json_documents(stream: Any) -> Iterator[dict[str, Any]]:
    """The JSON documents that `kubectl get --watch -o json` prints one after another."""
    lines: list[str] = []
    for line in stream:
        lines.append(line)
        if line.rstrip("\n") == "}":
            yield json.loads("".join(lines))
            lines = []
