"""When a rollout has settled, when it cannot, and how long to wait."""

import pytest

from specfleet.cli.kubectl import KubectlError, Missing
from specfleet.cli.settle import Settling, duration, settling
from specfleet.cli.wait import Wait
from specfleet.cli.watch import Look


def sdd(ready="True", reconciling="False", stalled="False", generation=7, seen=7, **status):
    said = {"Ready": ready, "Reconciling": reconciling, "Stalled": stalled}
    conditions = [
        {"type": type, "status": state, "reason": "CanaryAborted", "message": "why"}
        for type, state in said.items()
        if state
    ]
    told = {"observedGeneration": seen, "conditions": conditions, "reason": "Stable", "message": "serves", **status}
    return {"metadata": {"name": "llama", "generation": generation}, "status": told}


@pytest.mark.parametrize(
    ("resource", "settled", "says"),
    [
        (sdd(), True, "Stable: serves"),
        (sdd(reconciling="True", reason="CanaryDwelling", message="31 s more"), None, "CanaryDwelling: 31 s more"),
        (sdd(ready="False"), None, "Stable: serves"),
        (sdd(reconciling=""), None, "Stable: serves"),  # not reported is not False
        (sdd(stalled=""), None, "Stable: serves"),
        (sdd(stalled="True"), False, "CanaryAborted: why"),
        (sdd(stalled="True", reconciling=""), False, "CanaryAborted: why"),  # an SDD that never had a valid spec
        (sdd(seen=6), None, "the operator has not looked at generation 7 yet (seen 6)"),
        (sdd(seen=6, stalled="True"), None, "the operator has not looked at generation 7 yet (seen 6)"),
        (sdd(seen=None), None, "no status yet: is the operator running?"),
        ({"metadata": {"name": "llama", "generation": 1}}, None, "no status yet: is the operator running?"),
    ],
)
def test_only_what_is_reported_of_the_newest_spec_counts(resource, settled, says):
    assert settling(resource) == Settling(settled, says)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1h", 3600), ("1h30m5s", 5405), ("0s", 0)])
def test_durations(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "-1s", "1.5h", "5s1m", "1d", " 5s", "5 s", "٣s"])
def test_what_is_no_duration_is_said(text):
    with pytest.raises(ValueError, match="is not a duration such as"):
        duration(text)


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def waited(limit, *answers):
    """The wait and its last look, while `answers` come one after the other, the last for ever."""
    clock, coming = Clock(), list(answers)
    wait = Wait(limit, clock, clock.sleep)

    def look():
        answer = coming.pop(0) if len(coming) > 1 else coming[0]
        if isinstance(answer, Exception):
            raise answer
        wait.note(answer)
        return Look(answer["status"]["reason"], answer["status"]["reason"])

    return wait, wait.quietly(look), clock.now


BUSY = sdd(reconciling="True", reason="CanaryDwelling", message="31 s more")


def test_it_ends_with_the_look_that_has_settled():
    wait, last, spent = waited(60, BUSY, BUSY, sdd())
    assert (wait.state.settled, last.shown, spent) == (True, "Stable", 4)


def test_it_never_waits_longer_than_it_may():
    wait, last, spent = waited(5, BUSY)
    assert (wait.state, last.shown, spent) == (Settling(None, "CanaryDwelling: 31 s more"), "CanaryDwelling", 5)


def test_no_time_at_all_is_one_look():
    assert waited(0, sdd())[0].state.settled
    assert waited(0, BUSY)[0].state.settled is None


def test_a_failed_look_is_tried_again_and_is_what_it_waits_for_at_the_end():
    assert waited(60, BUSY, KubectlError("refused"), sdd())[0].state.settled
    assert waited(4, BUSY, KubectlError("refused"))[0].state == Settling(None, "an answer: refused")


def test_what_cannot_get_better_ends_the_wait():
    with pytest.raises(KubectlError):
        waited(60, KubectlError("no CRD"))
    with pytest.raises(Missing):
        waited(60, BUSY, Missing("gone"))
