"""The page of figures tells the published results and nothing else, and its plot is drawn from them."""

import importlib.util
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
GOAL = {"unit": "us", "goal": 250, "better": "lower"}


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("performance_page", REPOSITORY / "docs" / "performance.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def a_result(generator: ModuleType, **changes: Any) -> dict[str, Any]:
    compared = {
        name: {key: number * 1000.0 for key, _ in (*generator.PANELS, *generator.COLUMNS)}
        for number, name in enumerate(("direct", "nginx", "a<b", "adapter"), start=1)
    }
    metrics = [{"metric": "added", "value": 240.0, **GOAL}, {"metric": "late", "value": 12345.0, **GOAL}]
    metrics.append({"metric": "told", "value": 3.0, "unit": "calls", "goal": None, "better": "higher"})
    made = {"rounds": 5, "machine": "a machine", "metrics": metrics, "compared": compared, "quiet": True}
    return made | changes


def test_the_page_and_the_plot_are_what_the_generator_writes() -> None:
    command = [sys.executable, "docs/performance.py", "--check"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missed_goal_is_said_and_so_is_what_nobody_measured(generator: ModuleType) -> None:
    text = generator.figures({"adapter-chain": a_result(generator)})
    assert "| `added` | 240 us | ≤ 250 | yes |" in text
    assert "| `late` | 12,345 us | ≤ 250 | **no** |" in text
    assert "| `told` | 3 calls |  |  |" in text
    assert "`adapter-chain`, medians over 5 rounds, a machine." in text
    [missing] = [line for line in text.splitlines() if line.startswith("Not yet measured")]
    assert "`adapter-memory`" in missing
    assert "`adapter-chain`" not in missing
    everything = generator.figures({name: a_result(generator) for name in generator.BENCHMARKS})
    assert "Not yet measured" not in everything


def test_figures_of_a_machine_that_was_not_quiet_are_not_trusted(generator: ModuleType) -> None:
    assert "not to be trusted" in generator.figures({"batcher": a_result(generator, quiet=False)})


def test_bars_are_as_long_as_their_values(generator: ModuleType) -> None:
    drawn = ElementTree.fromstring(generator.plot(a_result(generator)))
    space = "{http://www.w3.org/2000/svg}"
    bars = [float(bar.attrib["width"]) for bar in drawn.iter(f"{space}rect")][1:]
    assert bars == pytest.approx([220, 330, 440] * len(generator.PANELS))
    names = [text.text for text in drawn.iter(f"{space}text") if text.attrib.get("text-anchor") == "end"]
    assert names == ["nginx", "a<b", "adapter"] * len(generator.PANELS)


def test_a_page_without_its_marks_is_not_overwritten(generator: ModuleType) -> None:
    with pytest.raises(SystemExit, match="lacks the marks"):
        generator.written("# Performance\n", {})
