"""Conditions: how they join, and that the page about them holds them all."""

import re
from pathlib import Path

import pytest

from specfleet.api import conditions
from specfleet.api.conditions import Type, condition, merge
from specfleet.api.reasons import Reason, named

PAGE = Path(__file__).parents[2] / "docs" / "conditions.md"
EARLIER, NOW = "2026-11-30T11:00:00Z", "2026-11-30T12:00:00Z"


def ready(status: conditions.Status, reason: Reason = Reason.STABLE, generation: int = 1) -> dict[str, object]:
    return condition(Type.READY, status, reason, "a message", generation)


def test_the_transition_time_stays_while_the_status_stays() -> None:
    old = merge([], [ready("True")], EARLIER)
    (kept,) = merge(old, [ready("True", Reason.CANARY_ANALYSING, 2)], NOW)
    assert (kept["lastTransitionTime"], kept["reason"], kept["observedGeneration"]) == (EARLIER, "CanaryAnalysing", 2)
    (moved,) = merge(old, [ready("False")], NOW)
    assert moved["lastTransitionTime"] == NOW


def test_the_order_is_fixed_and_what_is_no_longer_said_goes() -> None:
    old = merge([], [condition("Zebra", "True", "X", "", 1), ready("True")], EARLIER)
    new = [condition("Aardvark", "True", "X", "", 1), condition(Type.STALLED, "False", "X", "", 1), ready("True")]
    assert [item["type"] for item in merge(old, new, NOW)] == ["Ready", "Stalled", "Aardvark"]
    assert merge(old, [], NOW) == []


def test_merging_the_same_again_changes_nothing() -> None:
    once = merge([], [ready("True")], EARLIER)
    assert merge(once, [ready("True")], NOW) == once


def test_a_damaged_old_condition_does_no_harm() -> None:
    (item,) = merge([{}, {"type": "Ready", "status": "True"}], [ready("True")], NOW)
    assert item["lastTransitionTime"] == NOW


def test_a_long_message_is_cut_to_what_the_schema_admits() -> None:
    assert len(condition(Type.READY, "True", "X", "m" * 100_000, 1)["message"]) <= 32_768


def test_a_condition_is_found_by_type() -> None:
    assert conditions.find([ready("True")], Type.READY) == ready("True")
    assert conditions.find([ready("True")], Type.STALLED) is None


def test_the_page_names_every_condition_and_reason_and_no_other() -> None:
    on_page = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(on_page) == sorted([*map(str, Type), *map(str, Reason)])


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_one_camel_case_word_with_its_meaning_and_remedy(reason: Reason) -> None:
    assert re.fullmatch(r"([A-Z][a-z]+|GPUs)+", reason)
    assert reason.kind in {"state", "wait", "abort", "problem", "event"}
    assert reason.means.endswith(".")
    assert reason.todo.endswith((".", "`)."))
    assert named(str(reason)) is reason
