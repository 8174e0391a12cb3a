"""What kstatus, and with it Flux and `kpt live apply`, computes of an SDD in every state that a story reaches.

The rules are those of https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md.
"""

from typing import Any

import pytest

from specfleet.api.reasons import Reason

CURRENT = {Reason.STABLE, Reason.RETAINING_OLD, Reason.SCALED_TO_ZERO}
ROUTE = {
    Reason.GATEWAY_NOT_FOUND,
    Reason.ROUTE_NOT_FOUND,
    Reason.ROUTE_UNUSABLE,
    Reason.ROUTE_CONFLICT,
    Reason.ROUTE_CONTESTED,
}
FAILED = {Reason.CANARY_ABORTED, Reason.CONFIG_INVALID, Reason.NAME_TAKEN, *ROUTE}  # all others are InProgress


def kstatus(raw: dict[str, Any]) -> str:
    """The status of an object of a kind that kstatus has no rules of its own for."""
    meta, status = raw["metadata"], raw.get("status") or {}
    if meta.get("deletionTimestamp"):
        return "Terminating"
    if "observedGeneration" in status and status["observedGeneration"] != meta["generation"]:
        return "InProgress"
    conditions = status.get("conditions") or []
    for item in conditions:  # in their order: the first one that is True decides
        if item["type"] == "Reconciling" and item["status"] == "True":
            return "InProgress"
        if item["type"] == "Stalled" and item["status"] == "True":
            return "Failed"
    for item in conditions:
        if item["type"] == "Ready":
            return "Current" if item["status"] == "True" else "InProgress"
    return "Current"


def said(sdd):
    return {item["type"]: item for item in sdd["status"]["conditions"]}


def every(recorded):
    return [sdd for found in recorded.values() for sdd in found]


def test_the_computed_status_of_every_recorded_state(recorded):
    for sdd in every(recorded):
        if sdd["status"]["observedGeneration"] != sdd["metadata"]["generation"]:
            expected = "InProgress"
        elif said(sdd)["Stalled"]["status"] == "True":
            expected = "Failed"
        elif said(sdd)["Ready"]["reason"] in CURRENT:
            expected = "Current"
        else:
            expected = "InProgress"
        assert kstatus(sdd) == expected, said(sdd)


def test_stalled_has_exactly_the_reasons_that_wait_for_a_person(recorded):
    stalled = {said(sdd)["Stalled"]["reason"] for sdd in every(recorded) if said(sdd)["Stalled"]["status"] == "True"}
    assert stalled == FAILED


def test_reconciling_and_stalled_are_never_both_true(recorded):
    for sdd in every(recorded):
        values = [said(sdd)[type]["status"] for type in ("Reconciling", "Stalled") if type in said(sdd)]
        assert values.count("True") < 2, said(sdd)


def test_every_condition_says_which_generation_it_is_of(recorded):
    for sdd in every(recorded):
        generations = {item["observedGeneration"] for item in sdd["status"]["conditions"]}
        assert generations == {sdd["status"]["observedGeneration"]}


def test_a_canary_goes_from_current_over_in_progress_to_current(recorded):
    seen = _without_repeats(map(kstatus, recorded["promoted"]))
    assert seen == ["InProgress", "Current", "InProgress", "Current", "InProgress", "Current"]


@pytest.mark.parametrize("scenario", ["crash", "garbage", "accept", "start", "pace", "errors", "user_aborts"])
def test_an_aborted_canary_ends_as_failed(scenario, recorded):
    assert kstatus(recorded[scenario][-1]) == "Failed"
    assert said(recorded[scenario][-1])["Ready"]["status"] == "True", "stable serves"


def test_an_invalid_edit_in_the_middle_of_a_canary_stays_failed_until_it_is_corrected(recorded):
    edited = [sdd for sdd in recorded["invalid_edits"] if sdd["spec"]["speculation"]["numSpeculativeTokens"] == -1]
    assert _without_repeats(map(kstatus, edited)) == ["InProgress", "Failed"]


def test_a_fleet_that_was_made_with_zero_replicas_is_current(recorded):
    assert set(map(kstatus, recorded["zero_from_the_start"])) == {"Current"}


def _without_repeats(values):
    found = []
    for value in values:
        if found[-1:] != [value]:
            found.append(value)
    return found
