"""The main job from nothing: a cluster, the operator, a model server, one ModelService, a call by an MCP client.

Owns the order of the stages and what is said when one fails. It does what a person would do with kubectl and helm, and
nothing that they could not. `make demo` runs it; running it again is fine and fast; `make demo-down` takes all away.

Usage: ``python examples/demo/demo.py up|down``

Variables, so that it can run beside other work in a cluster that exists: MODELSERVICE_CLUSTER_NAME, DEMO_NAMESPACE for the
model server, DEMO_OPERATOR_NAMESPACE for the operator.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import calls
from stage import bold, elapsed, say, stage

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "examples" / "fastapi-digits"
CHART = REPOSITORY / "helm" / "modelservice"
LOGS = REPOSITORY / "build" / "demo"
VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
IMAGES = [f"modelservice/{name}:{VERSION}" for name in ("operator", "adapter", "example-fastapi-digits")]

NAME = "digits"
CLUSTER = os.environ.get("MODELSERVICE_CLUSTER_NAME", "modelservice")
NAMESPACE = os.environ.get("DEMO_NAMESPACE", "demo")
OPERATOR_NAMESPACE = os.environ.get("DEMO_OPERATOR_NAMESPACE", "modelservice-system")
RELEASE = "modelservice"
STAGES = 6

# The namespace refuses every pod that is not `restricted`: neither the model server nor the adapter needs more.
NAMESPACES = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: {OPERATOR_NAMESPACE}, labels: {{pod-security.kubernetes.io/enforce: restricted}}}}
---
apiVersion: v1
kind: Namespace
metadata: {{name: {NAMESPACE}, labels: {{pod-security.kubernetes.io/enforce: restricted}}}}
"""


class DemoError(Exception):
    """A stage failed. The text says what, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The cluster that the demo runs in: programs, called with the variables that point them at it."""

    environment: Mapping[str, str]

    def run(self, *command: str, stdin: str | None = None, timeout: float = 180, log: str | None = None) -> str:
        """Runs a program to its end and returns what it printed.

        Args:
            timeout: Seconds.
            log: Name of a file under `build/demo` for all that it printed.
        """
        try:
            done = subprocess.run(
                command,
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                text=True,
                env=dict(self.environment),
                cwd=REPOSITORY,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DemoError(f"{' '.join(command)}: no end after {timeout:.0f} s") from error
        if log:
            LOGS.mkdir(parents=True, exist_ok=True)
            (LOGS / log).write_text(done.stdout + done.stderr)
        if done.returncode != 0:
            last = "\n".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-15:])
            raise DemoError(f"{' '.join(command)}: exit code {done.returncode}\n{last}")
        return done.stdout

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 180) -> str:
        """kubectl in the demo's namespace."""
        return self.run("kubectl", "--namespace", NAMESPACE, *arguments, stdin=stdin, timeout=timeout)

    def get(self, *arguments: str) -> dict[str, Any]:
        """An object, or a list, as kubectl reads it."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "--output", "json"))
        return found

    @contextlib.contextmanager
    def port_forward(self, target: str, port: int) -> Iterator[str]:
        """A URL on this machine that leads to a port of a Service or Deployment, while the block runs."""
        command = ["kubectl", "--namespace", NAMESPACE, "port-forward", target, f":{port}"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(self.environment)
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            match = re.search(r"127\.0\.0\.1:(\d+)", line)
            if match is None:
                raise DemoError(f"{' '.join(command)}: {line.strip() or 'ended at once'}")
            yield f"http://127.0.0.1:{match[1]}"
        finally:
            process.terminate()
            process.wait(10)
            if process.stdout is not None:
                process.stdout.close()


def localcluster(*arguments: str) -> list[str]:
    """The cluster command. It needs no package, so the interpreter that runs us will do."""
    command, *rest = arguments
    return [sys.executable, "-m", "localcluster", command, "--name", CLUSTER, *rest]


def own_environment() -> dict[str, str]:
    """Our variables, with the cluster command on Python's path."""
    return {**os.environ, "PYTHONPATH": str(REPOSITORY / "tests" / "cluster")}


def bring_up_cluster() -> Cluster:
    """The kind cluster; what it needs is made first, which takes long only the first time."""
    up = subprocess.run(localcluster("up"), env=own_environment(), stdout=subprocess.DEVNULL, check=False)
    if up.returncode != 0:
        raise DemoError("The cluster could not be made; what stands in the way is said above.")
    script = 'eval "$("$@")" && exec env -0'
    command = ["bash", "-c", script, "env", *localcluster("env")]
    done = subprocess.run(command, env=own_environment(), capture_output=True, text=True, check=True)
    environment = dict(line.split("=", 1) for line in done.stdout.split("\0") if "=" in line)
    del environment["PYTHONPATH"]
    return Cluster(environment=environment)


def build_and_load_images() -> None:
    """The three images by `docker build`, then into the cluster's node; both skip what is there already."""
    if subprocess.run(["make", "--silent", "--no-print-directory", "images"], cwd=REPOSITORY, check=False).returncode:
        raise DemoError("The images could not be built; what stands in the way is said above.")
    if subprocess.run(localcluster("load", *IMAGES), env=own_environment(), check=False).returncode:
        raise DemoError("The images could not be loaded into the cluster; what stands in the way is said above.")


def install_chart(cluster: Cluster) -> None:
    """The operator, allowed to work in the demo's namespace and in no other."""
    cluster.kubectl("apply", "--filename", "-", stdin=NAMESPACES)
    # Helm installs CRDs once and never changes them; an upgrade is ours to do.
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "--filename", str(CHART / "crds"))
    # The tag stays while we develop; the image's id makes Helm roll the operator when it was built anew.
    image_id = cluster.run("docker", "image", "inspect", "--format", "{{.Id}}", IMAGES[0]).strip()
    command = ["helm", "upgrade", RELEASE, str(CHART), "--install", "--namespace", OPERATOR_NAMESPACE]
    command += ["--set", f"watchNamespaces={{{NAMESPACE}}}", "--set-string", f"podAnnotations.image-id={image_id}"]
    cluster.run(*command, log="helm.log")
    wait_until(lambda: operator_is_up(cluster), what="the operator to be up", seconds=120)
    say(*cluster.run("kubectl", "--namespace", OPERATOR_NAMESPACE, "get", "pods").splitlines())


def operator_is_up(cluster: Cluster) -> bool:
    """Whether the one operator pod of the current revision is ready; an operator that keeps ending is not waited for."""
    selector = ["--namespace", OPERATOR_NAMESPACE, "--selector", "app.kubernetes.io/component=operator"]
    for pod in json.loads(cluster.run("kubectl", "get", "pods", *selector, "--output", "json"))["items"]:
        is_going = "deletionTimestamp" in pod["metadata"]
        states = pod["status"].get("containerStatuses", [])
        if not is_going and any(state["restartCount"] > 1 and not state["ready"] for state in states):
            question = ["--namespace", OPERATOR_NAMESPACE, "logs", pod["metadata"]["name"], "--previous", "--tail=20"]
            raise DemoError(f"The operator starts and ends again. Its last words:\n{cluster.run('kubectl', *question)}")
    deployment = ["--namespace", OPERATOR_NAMESPACE, "get", "deployment", RELEASE, "--output", "json"]
    found = json.loads(cluster.run("kubectl", *deployment))
    status: dict[str, int] = found["status"]
    is_current = status.get("observedGeneration", 0) == found["metadata"]["generation"]
    return is_current and status.get("availableReplicas", 0) == status.get("updatedReplicas", 0) == 1


def run_model_server(cluster: Cluster) -> None:
    """An ordinary FastAPI Deployment; what an earlier run adopted is released first."""
    if cluster.kubectl("get", "modelservice", NAME, "--ignore-not-found"):
        say("an earlier run adopted it: releasing it first")
        cluster.kubectl("delete", "modelservice", NAME, "--timeout=2m")
    cluster.kubectl("apply", "--filename", str(EXAMPLE / "deployment.yaml"))
    cluster.kubectl("rollout", "status", f"deployment/{NAME}", "--timeout=3m", timeout=200)
    wait_until(lambda: len(pods(cluster)) == 1, what="the old pod to go", seconds=60)
    say(bold("containers before:"), *show_containers(cluster))


def adopt(cluster: Cluster) -> None:
    """One ModelService, until an MCP client can use the model."""
    manifest = EXAMPLE / "modelservice.yaml"
    say(*[line for line in manifest.read_text().splitlines() if not line.startswith("#")])
    cluster.kubectl("apply", "--filename", str(manifest))
    cluster.kubectl("wait", "--for=condition=Ready", f"modelservice/{NAME}", "--timeout=3m", timeout=200)
    wait_until(lambda: len(pods(cluster)) == 1, what="the old pod to go", seconds=60)
    say("", *cluster.kubectl("get", "modelservice", NAME).splitlines(), "")
    say(bold("containers after:"), *show_containers(cluster))


def use(cluster: Cluster) -> None:
    """The tools as an MCP client sees them, one call, and the same call without MCP."""
    port = int(cluster.get("service", f"{NAME}-mcp")["spec"]["ports"][0]["port"])
    path = cluster.get("modelservice", NAME)["status"]["address"]["url"].split("/", 3)[3]
    with cluster.port_forward(f"service/{NAME}-mcp", port) as url:
        seen = asyncio.run(calls.call_as_client(f"{url}/{path}"))
    with cluster.port_forward(f"deployment/{NAME}", 8000) as url:
        direct = asyncio.run(calls.call_directly(url))
    say(f"MCP server {seen.server}, protocol {seen.protocol}; its tools:")
    for tool in seen.tools:
        arguments = ", ".join(
            f"{name}: {part.get('type', 'any')}" for name, part in tool.input_schema["properties"].items()
        )
        say(f"  {bold(tool.name)}({arguments})  {tool.description or ''}")
    say("", f"calling {seen.tool} with this picture:", *[f"  |{line}|" for line in calls.draw(calls.ZERO)])
    say(f"  answer: {bold(json.dumps(seen.answer))}", "")
    say(f"one call by the official MCP client   {seen.milliseconds:6.1f} ms")
    say(f"the same, directly to the model       {direct.milliseconds:6.1f} ms")
    say(f"(medians of {calls.ROUNDS}, each through a kubectl port-forward; the first includes the client's own work)")
    if seen.answer != direct.answer:
        raise DemoError(f"The two answers differ: {seen.answer} by MCP, {direct.answer} directly.")


def pods(cluster: Cluster) -> list[dict[str, Any]]:
    """The model server's pods."""
    found: list[dict[str, Any]] = cluster.get("pods", "--selector", f"app.kubernetes.io/name={NAME}")["items"]
    return found


def show_containers(cluster: Cluster) -> list[str]:
    """A line a container of the model server's pods."""
    return [
        f"  {pod['metadata']['name']}  {container['name']:<12} {container['image']}"
        for pod in pods(cluster)
        for container in pod["spec"]["containers"]
    ]


def wait_until(check: Callable[[], bool], *, what: str, seconds: float) -> None:
    """Asks again and again; Kubernetes sends no event for this."""
    limit = time.monotonic() + seconds
    while not check():
        if time.monotonic() > limit:
            raise DemoError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.5)


def collect_diagnostics(cluster: Cluster) -> Path:
    """Everything that tells why a stage failed, in one file."""
    operator = ("--namespace", OPERATOR_NAMESPACE)
    questions = [
        ("kubectl", "get", "pods", "--all-namespaces", "--output", "wide"),
        ("kubectl", "--namespace", NAMESPACE, "describe", "modelservice", NAME),
        ("kubectl", "--namespace", NAMESPACE, "describe", "deployment,pods"),
        ("kubectl", "--namespace", NAMESPACE, "get", "events", "--sort-by=.lastTimestamp"),
        (
            "kubectl",
            "--namespace",
            NAMESPACE,
            "logs",
            f"deployment/{NAME}",
            "--all-containers",
            "--prefix",
            "--tail=100",
        ),
        ("kubectl", *operator, "describe", "pods"),
        ("kubectl", *operator, "logs", f"deployment/{RELEASE}", "--tail=200"),
    ]
    LOGS.mkdir(parents=True, exist_ok=True)
    file = LOGS / "diagnostics.txt"
    with file.open("w") as out:
        for question in questions:
            try:
                answer = cluster.run(*question, timeout=30)
            except DemoError as error:
                answer = str(error)
            out.write(f"$ {' '.join(question)}\n{answer}\n\n")
    return file


def say_how_to_go_on() -> None:
    """The commands for what comes next."""
    python = "python3" if shutil.which("python3") else sys.executable
    print()
    print(bold(f"Done in {elapsed():.0f} s. Go on with:"))
    say(
        f'eval "$(PYTHONPATH=tests/cluster {python} -m localcluster env)"   # point kubectl and helm at this cluster',
        f"kubectl -n {NAMESPACE} describe modelservice {NAME}",
        f"kubectl -n {NAMESPACE} port-forward service/{NAME}-mcp 8931   # an MCP client may use http://127.0.0.1:8931/mcp",
        f"kubectl -n {NAMESPACE} delete modelservice {NAME}   # undo: the Deployment is what it was before",
        "make demo-down   # take everything away, the cluster included",
        "The same by hand, step by step: docs/tutorial/first-model.md",
    )


def up() -> None:
    """Every stage, in order."""
    with stage(1, STAGES, "A Kubernetes cluster (kind)", quiet=False):
        cluster = bring_up_cluster()
    try:
        with stage(2, STAGES, "The images: operator, adapter and an example model server", quiet=False):
            build_and_load_images()
        with stage(3, STAGES, f"The operator, by its Helm chart, for the namespace {NAMESPACE} alone"):
            install_chart(cluster)
        with stage(4, STAGES, "A model server that knows nothing of us: FastAPI around scikit-learn"):
            run_model_server(cluster)
        with stage(5, STAGES, "One ModelService adopts it"):
            adopt(cluster)
        with stage(6, STAGES, "An MCP client lists its tools and calls one"):
            use(cluster)
    except (DemoError, subprocess.SubprocessError, OSError, RuntimeError, ExceptionGroup) as error:
        file = collect_diagnostics(cluster)
        raise DemoError(
            f"{error}\n\nWhat the cluster says about it is in {file.relative_to(REPOSITORY)}.\n"
            "Run `make demo` again to go on from here, or `make demo-down` to start from nothing."
        ) from error
    say_how_to_go_on()


def down() -> None:
    """Takes away the cluster, and with it everything that the demo made in it."""
    subprocess.run(localcluster("down"), env=own_environment(), check=True)


def main(arguments: list[str]) -> int:
    """Runs ``up`` or ``down``; the exit code."""
    actions = {"up": up, "down": down}
    if len(arguments) != 1 or arguments[0] not in actions:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        actions[arguments[0]]()
    except DemoError as error:
        print(f"\nThe demo stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. `make demo` goes on from here, `make demo-down` takes everything away.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
