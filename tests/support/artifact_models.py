"""Model files for tests of models that the adapter runs itself: made once per test run, by the environments that can make them.

Owns the folders and which interpreter runs what. A test gets a config for a file and an adapter that serves it.
"""

import asyncio
import atexit
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import cache
from pathlib import Path
from typing import Any, Literal

import venvs
from adapter_harness import FAST, Running, adapter
from modelservice_api.adapter_config import AdapterConfig, ArtifactConfig, BackendConfig, LimitsConfig, ModelConfig
from modelservice_sidecar.backends.artifact import ArtifactBackend
from modelservice_sidecar.worker.supervised import Worker

SUPPORT = Path(__file__).resolve().parent
FOLDERS = SUPPORT.parents[1] / "build" / "test-artifacts"

Kind = Literal["TVM", "Torch", "ONNX"]
RUNTIMES: dict[Kind, str] = {"TVM": "tvm", "Torch": "torch", "ONNX": "onnx"}


@cache
def python_of(kind: Kind) -> str:
    """The interpreter that holds the kind's runtime."""
    return str(venvs.python_of(RUNTIMES[kind]))


@cache
def onnx_models() -> Path:
    """The folder of ONNX files."""
    folder = FOLDERS / f"onnx-{os.getpid()}"
    subprocess.run([python_of("ONNX"), SUPPORT / "artifact_onnx.py", folder], check=True, timeout=120)
    return folder


@cache
def torch_models() -> Path:
    """The folder of PyTorch files, and of weights for them."""
    folder = FOLDERS / f"torch-{os.getpid()}"
    subprocess.run([python_of("Torch"), SUPPORT / "artifact_torch.py", folder], check=True, timeout=120)
    return folder


@cache
def dense_model() -> tuple[Path, Path]:
    """A PyTorch file with 100 MB of weights, and another set of weights for it."""
    folder = FOLDERS / f"dense-{os.getpid()}"
    subprocess.run([python_of("Torch"), SUPPORT / "artifact_torch.py", folder, "dense"], check=True, timeout=120)
    return folder / "dense.pt2", folder / "dense-twos.safetensors"


@cache
def tvm_model(source: Path, *options: str) -> Path:
    """The `.so` file that `modelservice tvm build` makes of a model."""
    folder = FOLDERS / f"tvm-{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / f"{source.stem}.so"
    python = python_of("TVM" if source.suffix == ".onnx" else "Torch")
    done = tvm("build", str(source), "-o", str(output), "--python", python, *options)
    assert done.returncode == 0, done.stderr
    return output


def tvm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `modelservice tvm`."""
    command = [sys.executable, "-m", "modelservice_cli.__main__", "tvm", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def copy_tvm(model: Path, folder: Path) -> Path:
    """The code, its signature file and its weights in a folder of the test's own."""
    for path in model.parent.glob(f"{model.stem}.*"):
        shutil.copy(path, folder)
    return folder / model.name


def put(source: Path, target: Path) -> None:
    """Put a file in another one's place, as a careful program does."""
    new = target.with_name(f".new-{target.name}")
    shutil.copy(source, new)
    new.replace(target)


@atexit.register
def _forget() -> None:
    for folder in FOLDERS.glob(f"*-{os.getpid()}"):
        shutil.rmtree(folder, ignore_errors=True)


def artifact(kind: Kind, path: Path, **fields: Any) -> ArtifactConfig:
    """The config of one file, run by the kind's own interpreter."""
    fields.setdefault("python", python_of(kind))
    return ArtifactConfig(artifact=str(path), **fields)


def config_of(kind: Kind, *artifacts: ArtifactConfig, timeout: float = 20.0, **model: Any) -> AdapterConfig:
    """An adapter's config that runs these files."""
    return AdapterConfig(
        backend=BackendConfig.model_validate({"type": kind, RUNTIMES[kind]: artifacts}),
        model=ModelConfig(**model),
        limits=LimitsConfig(timeout=timeout),
    )


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run an async test. On a busy machine PyTorch takes its time to be imported, so the bound is wider than the harness's."""

    async def bounded() -> None:
        async with asyncio.timeout(120):
            await test()

    asyncio.run(bounded())


@contextlib.asynccontextmanager
async def serving(config: AdapterConfig, *, wait: bool = True, **options: Any) -> AsyncIterator[Running]:
    """An adapter that runs these models; port 9 is never asked."""
    async with adapter(9, config, wait=wait, pace=FAST, **options) as running:
        yield running


def workers(running: Running) -> dict[str, Worker]:
    """The workers of a running adapter by tool."""
    backend = running.adapter.snapshot().backend
    assert isinstance(backend, ArtifactBackend)
    return backend.workers()


async def until(true: Callable[[], bool]) -> None:
    """Look again and again, within a bound: for what a worker process does, there is no event to wait for."""
    for _ in range(4000):
        if true():
            return
        await asyncio.sleep(0.005)
    raise TimeoutError


async def until_told(running: Running, part: str) -> str:
    """The first report whose message holds that text."""
    await until(lambda: any(part in line["message"] for line in running.lines.of("backend")))
    return next(str(line["message"]) for line in running.lines.of("backend") if part in line["message"])


async def until_report(running: Running, state: str) -> str:
    """The message of the first report in that state."""
    return str((await running.lines.wait_for("backend", state=state))["message"])


def text_of(result: dict[str, Any]) -> str:
    """The text of a tool's result."""
    return str(result["content"][0]["text"])
