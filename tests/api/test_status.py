"""A status that was stored by another version, or by hand: what has today's shape is read, the rest is unknown."""

from typing import Any

import pytest
from hypothesis import given

from corruption import corruptions
from specfleet.api.status import readable

STATUS: dict[str, Any] = {
    "reason": "CanaryAnalysing",
    "replicas": 4,
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "Stable", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ],
    "canary": {
        "revision": "qwen-1",
        "replicas": 1,
        "guards": [{"name": "alive", "state": "passing", "message": "0 restarts"}],
        "plan": [{"asked": "20%", "canary": 1, "stable": 4, "accelerators": 5, "lends": 0}],
    },
}


def test_what_has_todays_shape_stays() -> None:
    assert readable(STATUS) == STATUS


@pytest.mark.parametrize("empty", [None, "", []])
def test_what_is_empty_is_absent(empty: object) -> None:
    assert readable({**STATUS, "reason": empty}) == {key: value for key, value in STATUS.items() if key != "reason"}


@pytest.mark.parametrize("nothing", [None, [], "x", 7])
def test_what_is_no_status_is_an_empty_one(nothing: object) -> None:
    assert readable(nothing) == {}


def test_a_field_of_another_type_is_unknown_and_its_neighbours_stay() -> None:
    """`guards` was one text once."""
    canary = {**STATUS["canary"], "guards": "alive, correct", "later": {"new": 1}}
    assert readable({**STATUS, "canary": canary}) == {
        **STATUS,
        "canary": {key: value for key, value in canary.items() if key != "guards"},
    }


def test_what_is_absent_longer_or_a_newer_word_stays() -> None:
    guards = [{"name": "alive", "state": "skipped", "message": "x" * 5000}, {"name": "kind"}]
    status = {**STATUS, "canary": {**STATUS["canary"], "guards": guards}, "conditions": [{"type": "Ready"}]}
    assert readable(status) == status


def test_an_item_that_is_none_goes_and_the_others_stay() -> None:
    plan = [7, STATUS["canary"]["plan"][0], []]
    found = readable({**STATUS, "canary": {**STATUS["canary"], "plan": plan}})
    assert found["canary"]["plan"] == STATUS["canary"]["plan"]


@pytest.mark.parametrize("text", ["soon", "", "x" * 5000])
def test_a_time_that_is_none_is_unknown(text: str) -> None:
    condition = STATUS["conditions"][0]
    found = readable({**STATUS, "conditions": [{**condition, "lastTransitionTime": text}]})
    assert found["conditions"] == [{key: value for key, value in condition.items() if key != "lastTransitionTime"}]


@given(corruptions(STATUS))
def test_every_status_is_readable_and_reading_it_again_changes_nothing(status: Any) -> None:
    found = readable(status)
    assert readable(found) == found
    for item in found.get("conditions") or ():
        assert all(isinstance(value, str | int | None) for value in item.values())
