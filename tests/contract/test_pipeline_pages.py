"""The pages of the pipeline name the stages that there are, in their order, and the metrics that they bring."""

import re
from pathlib import Path

import pytest

from adapter_harness import run
from modelservice_api.adapter_config import (
    AdapterConfig,
    BatcherConfig,
    CacheConfig,
    CircuitBreakerConfig,
    RateLimitingConfig,
    RateLimitStoreConfig,
    RetryConfig,
    TokenBucketConfig,
)
from modelservice_sidecar.pipeline.chain import ORDER
from modelservice_sidecar.telemetry import Telemetry
from pipeline_harness import Bench, ToldBackend, text

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = REPOSITORY / "docs" / "reference" / "pipeline"
STAGES = [name for name in ORDER if name != "backend"]


async def _fine(*_: object) -> object:
    return text("fine")


def test_every_stage_has_its_page_and_the_index_and_the_explanation_have_their_order() -> None:
    index = (PAGES / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[`(\w+)`\]\(([\w-]+\.md)\)", index, re.MULTILINE)
    assert [name for name, _ in listed] == STAGES
    assert {page for _, page in listed} | {"index.md"} == {page.name for page in PAGES.glob("*.md")}
    for name, page in listed:
        assert (PAGES / page).read_text(encoding="utf-8").startswith(f"# Stage `{name}`")
    explained = (REPOSITORY / "docs" / "explanation" / "adapter.md").read_text(encoding="utf-8")
    part = explained.partition("## The order of the stages")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE) == STAGES


@pytest.mark.promise("limits")
def test_every_metric_of_a_stage_is_documented_and_no_other() -> None:
    async def test() -> None:
        bucket = TokenBucketConfig(max_tokens=1, refill_period=1)
        store = RateLimitStoreConfig(host="localhost", prefix="p", failure_mode="Open")
        everything = AdapterConfig(
            rate_limiting=RateLimitingConfig(shared=bucket, store=store),
            cache=CacheConfig(ttl=1),
            circuit_breaker=CircuitBreakerConfig(),
            retry=RetryConfig(),
            batcher=BatcherConfig(max_batch_size=2),
        )
        bench = Bench(ToldBackend(_fine), everything)  # type: ignore[arg-type]
        theirs = set(bench.telemetry.families) - set(Telemetry(writer=bench.lines).families)
        told = "\n".join(page.read_text(encoding="utf-8") for page in PAGES.glob("*.md"))
        named = {name.removesuffix("_total") for name in re.findall(r"`(modelservice_\w+)`", told)}
        general = {"modelservice_calls", "modelservice_calls_in_flight", "modelservice_calls_waiting"}
        assert theirs == named - general
        listed = (REPOSITORY / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
        assert [name for name in theirs if name not in listed] == []

    run(test)
