"""Changes of the config document under load: taken up without a restart or a lost call, and a bad one takes nothing away."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from adapter_harness import Running, adapter, request, run
from model_apps import SlowModel, model_server, named_app
from modelservice_api.adapter_config import (
    AdapterConfig,
    BackendConfig,
    LimitsConfig,
    LoggingConfig,
    OpenAPIConfig,
    ServerConfig,
    ToolsConfig,
    TracingConfig,
)
from modelservice_sidecar.config_file import ConfigFile
from otlp_receiver import collector

pytestmark = [pytest.mark.promise("config-live"), pytest.mark.promise("nothing-lost")]


class ConfigMapVolume:
    """A directory as the kubelet mounts a ConfigMap: the file is a link through a link that is swapped at once."""

    def __init__(self, root: Path, content: str) -> None:
        self.path = root / "config.json"
        self._root = root
        self._version = 0
        self.swap(content)
        self.path.symlink_to(Path("..data") / "config.json")

    def swap(self, content: str) -> None:
        self._version += 1
        version = self._root / f"..{self._version}"
        version.mkdir()
        (version / "config.json").write_text(content, encoding="utf-8")
        staged = self._root / "..staged"
        staged.symlink_to(version)
        os.replace(staged, self._root / "..data")

    def file(self) -> ConfigFile:
        return ConfigFile(self.path)


async def gauge(running: Running, name: str) -> float:
    text = running.adapter.telemetry.render().decode()
    [line] = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


def bad_documents() -> list[tuple[str, str]]:
    good = json.loads(AdapterConfig().to_json())
    return [
        ("{", "Invalid JSON"),
        ("[]", "document"),
        (json.dumps({**good, "surprise": 1}), "surprise"),
        (json.dumps({**good, "version": "v2"}), "version"),
        (json.dumps({**good, "limits": {"timeout": 0}}), "limits.timeout"),
        (json.dumps({**good, "tracing": {"endpoint": "collector:4318"}}), "endpoint is not a plain http"),
        (json.dumps({**good, "tracing": {"endpoint": "http://a:b@c"}}), "endpoint is not a plain http"),
        (json.dumps({**good, "logging": {"redactPatterns": ["("]}}), "no regular expression"),
        (" " * (1024 * 1024 + 1), "larger than"),
    ]


@pytest.mark.parametrize(("document", "said"), bad_documents(), ids=lambda value: value[:24])
def test_a_bad_document_is_told_everywhere_and_the_last_good_one_serves_on(
    tmp_path: Path, document: str, said: str
) -> None:
    async def test() -> None:
        good = AdapterConfig(server=ServerConfig(name="fraud"), tools=ToolsConfig(filter=("one",)))
        mounted = ConfigMapVolume(tmp_path, good.to_json())
        file = mounted.file()
        assert file.read() == good
        with model_server(named_app("one", "two")) as port:
            async with adapter(port, good, config_file=file, config_poll=0.01) as running:
                assert (await request(running.admin_port, "GET", "/readyz")).body == b"ok\n"
                assert await gauge(running, "modelservice_config_last_reload_successful") == 1
                loaded = await gauge(running, "modelservice_config_last_reload_success_timestamp_seconds")
                mounted.swap(document)
                line = await running.lines.wait_for("config_rejected")
                assert said in line["message"]
                ready = await request(running.admin_port, "GET", "/readyz")
                assert (ready.status, ready.body.startswith(b"ok\nconfig rejected")) == (200, True)
                assert said in ready.body.decode()
                assert await gauge(running, "modelservice_config_last_reload_successful") == 0
                assert await gauge(running, "modelservice_config_last_reload_success_timestamp_seconds") == loaded
                report = await running.report()
                assert said in report["configError"]
                assert (report["configDigest"], report["tools"]["names"]) == (good.digest(), ["one"])
                assert (await running.call("one"))["structuredContent"] == {"ok": True}
                mounted.swap(good.model_copy(update={"tools": ToolsConfig()}).to_json())
                await running.lines.wait_for("config_loaded")
                assert (await request(running.admin_port, "GET", "/readyz")).body == b"ok\n"
                assert await gauge(running, "modelservice_config_last_reload_successful") == 1
                assert (await running.report())["configError"] == ""

    run(test)


def test_going_back_to_the_document_that_is_obeyed_clears_the_complaint(tmp_path: Path) -> None:
    async def test() -> None:
        mounted = ConfigMapVolume(tmp_path, AdapterConfig().to_json())
        file = mounted.file()
        file.read()
        with model_server(named_app("one")) as port:
            async with adapter(port, config_file=file, config_poll=0.01) as running:
                mounted.swap("{")
                await running.lines.wait_for("config_rejected")
                mounted.swap(AdapterConfig().to_json())
                while (await running.report())["configError"]:
                    pass
                assert running.lines.of("config_loaded") == []

    run(test)


def test_a_fault_in_taking_up_a_document_is_told_and_the_next_one_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        good = AdapterConfig()
        mounted = ConfigMapVolume(tmp_path, good.to_json())
        file = mounted.file()
        file.read()
        with model_server(named_app("one")) as port:
            async with adapter(port, config_file=file, config_poll=0.01) as running:

                async def fault(_config: AdapterConfig) -> None:
                    raise RuntimeError("canary")

                with monkeypatch.context() as patch:
                    patch.setattr(running.adapter, "reconfigure", fault)
                    mounted.swap(good.model_copy(update={"server": ServerConfig(name="new")}).to_json())
                    line = await running.lines.wait_for("config_rejected")
                assert "cannot obey it (RuntimeError)" in line["message"]
                assert "canary" not in json.dumps(line).replace('raise RuntimeError(\\"canary\\")', "")
                assert (await running.report())["configDigest"] == good.digest()
                newest = good.model_copy(update={"server": ServerConfig(name="newest")})
                mounted.swap(newest.to_json())
                await running.lines.wait_for("config_loaded", digest=newest.digest())

    run(test)


def test_hundreds_of_calls_through_fifty_changes_good_and_bad_are_all_answered(tmp_path: Path) -> None:
    async def test() -> None:
        with collector() as receiver, model_server(named_app("one", "two")) as port:
            variants = [
                AdapterConfig(),
                AdapterConfig(limits=LimitsConfig(max_concurrency=2)),
                AdapterConfig(tools=ToolsConfig(filter=("one",))),
                AdapterConfig(backend=BackendConfig(type="OpenAPI", open_api=OpenAPIConfig(exclude=("two",)))),
                AdapterConfig(logging=LoggingConfig(bodies="Redacted")),
                AdapterConfig(tracing=TracingConfig(endpoint=receiver.endpoint, sample_ratio=1)),
            ]
            mounted = ConfigMapVolume(tmp_path, variants[0].to_json())
            file = mounted.file()
            file.read()
            async with adapter(port, config_file=file, config_poll=0.001) as running:
                over = asyncio.Event()
                answered = 0

                async def call() -> None:
                    nonlocal answered
                    while not over.is_set():
                        assert (await running.call("one"))["structuredContent"] == {"ok": True}
                        answered += 1

                callers = [asyncio.ensure_future(call()) for _ in range(8)]
                for number in range(50):
                    if number % 5 == 4:
                        seen = len(running.lines.of("config_rejected"))
                        mounted.swap("{")
                        while len(running.lines.of("config_rejected")) == seen:  # noqa: ASYNC110 - of many, not the first
                            await asyncio.sleep(0)
                        continue
                    wanted = variants[number % len(variants)]
                    mounted.swap(wanted.to_json())
                    while running.adapter.config != wanted or running.adapter.config_error:  # noqa: ASYNC110 - as above
                        await asyncio.sleep(0)
                over.set()
                await asyncio.gather(*callers)
                assert answered > 100
                outcomes = {line["outcome"] for line in running.lines.of("call")}
                assert outcomes == {"ok"}

    run(test)


def test_a_call_in_flight_outlives_a_change_of_the_model_server_s_own_block() -> None:
    async def test() -> None:
        model = SlowModel()
        with model_server(model.app()) as port:
            async with adapter(port) as running:
                call = asyncio.ensure_future(running.call("slow"))
                await asyncio.to_thread(model.entered.acquire)
                before = running.adapter.discovery._backend
                closed = asyncio.Event()
                assert before is not None
                close = before.aclose

                async def aclose() -> None:
                    closed.set()
                    await close()

                before.aclose = aclose  # type: ignore[method-assign]
                changed: Any = AdapterConfig(backend=BackendConfig(type="OpenAPI"))
                await running.adapter.reconfigure(changed)
                await running.lines.wait_for("backend", state="Ready")
                assert not closed.is_set()
                model.release()
                assert (await call)["structuredContent"] == {"call": 1}
                await closed.wait()
                assert running.adapter.calls.running.total() == 0

    run(test)
