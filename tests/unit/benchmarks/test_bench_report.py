"""The JSON of a benchmark has the agreed shape, and its table says what was missed and what not to trust."""

import json

from servicebench.report import Metric, Report, rounded, table

LOWER = Metric(metric="idle_rss", value=51.0234, unit="MB", goal=48, better="lower")
HIGHER = Metric(metric="calls_per_second", value=15642.4, unit="1/s", goal=12000, better="higher")
TOLD = Metric(metric="calls", value=640, unit="calls", goal=None, better="higher")


def a_report(**changes: object) -> Report:
    values: dict[str, object] = {
        "name": "thing",
        "machine": "a machine",
        "rounds": 5,
        "metrics": (LOWER, HIGHER, TOLD),
        "compared": {"nginx": {"p50_us": 134.0}, "sdk": {"p50_us": 592.0, "p99_us": 822.0}},
    }
    return Report(**(values | changes))  # type: ignore[arg-type]


def test_a_goal_is_kept_in_its_own_direction_and_reached_is_kept() -> None:
    assert [metric.kept for metric in (LOWER, HIGHER, TOLD)] == [False, True, None]
    assert Metric(metric="x", value=48, unit="MB", goal=48, better="lower").kept


def test_the_document_has_the_agreed_shape_and_is_one_line_of_json() -> None:
    document = json.loads(a_report().line())
    assert "\n" not in a_report().line()
    assert list(document)[:5] == ["name", "machine", "rounds", "metrics", "compared"]
    assert document["metrics"][0] == {
        "metric": "idle_rss",
        "value": 51.02,
        "unit": "MB",
        "goal": 48,
        "better": "lower",
    }
    assert document["metrics"][2]["goal"] is None
    assert document["compared"]["sdk"] == {"p50_us": 592.0, "p99_us": 822.0}
    assert (document["discarded"], document["quiet"]) == (0, True)


def test_the_table_names_what_was_missed_and_leaves_a_gap_for_what_was_not_measured() -> None:
    lines = table(a_report()).splitlines()
    assert [line.split()[0] for line in lines if "idle_rss" in line or "per_second" in line] == ["MISSED", "ok"]
    assert next(line for line in lines if line.startswith("  nginx")).split() == ["nginx", "134", "-"]


def test_the_table_says_what_was_discarded_and_when_not_to_trust_it() -> None:
    assert "discarded" not in table(a_report())
    said = table(a_report(discarded=3, quiet=False))
    assert "3 samples were discarded" in said
    assert "do not trust" in said


def test_figures_are_rounded_to_four_digits_and_not_to_four_places() -> None:
    assert [rounded(value) for value in (0.123456, 15642.4, 0.0)] == [0.1235, 15640.0, 0.0]
