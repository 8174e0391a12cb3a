"""What the guards say: each one something, unknown where nothing is known, in words that stay while nothing moves."""

from dataclasses import replace

import pytest

from specfleet.judgement.agreement import Agreement
from specfleet.judgement.guards import ArmFacts, Fit, Guard, PodFacts, ProbeFacts, first_failure
from specfleet.judgement.guardstates import State, guard_states
from specfleet.telemetry.counters import Tally

POD = PodFacts("llama-1", ready=True, restarts=0, trouble="")
AGREES = Agreement("llama-1", 0.97, 0.99, 0, "a", "b")
HEALTHY = ArmFacts(
    pods=(POD,),
    recent=Tally(drafts=400, draft_tokens=1200, http_requests=50, per_position=(280.0,), speculating=True),
    last=Tally(http_requests=100),
    running=3,
    probe=ProbeFacts(9, 0, 0, ""),
    stalled_seconds=0.0,
    agreement=AGREES,
    fit=Fit(9700, 10_000, 0),
)
NOTHING = ArmFacts((), Tally.zero(), None, None, ProbeFacts(0, 0, 0, ""), 0)


def said(canary, stable=None, before=None):
    return {item.guard: (item.state, item.message) for item in guard_states(canary, stable, before or {})}


def test_every_guard_of_a_healthy_canary_passes_with_its_numbers():
    assert said(HEALTHY) == {
        Guard.ALIVE: (State.PASSING, "0 restarts"),
        Guard.CORRECT: (State.PASSING, "answers are sane; they agree with stable's by 97 %, stable's own by 99 %"),
        Guard.FITS: (
            State.PASSING,
            "9700 tokens of KV cache a pod, -3 % against stable's 10000; at least -5 % expected",
        ),
        Guard.ACCEPTING: (State.PASSING, "70 % of first drafted tokens accepted"),
        Guard.ERRORS: (State.PASSING, "0.0 % of late answered 5xx"),
        Guard.PROGRESS: (State.PASSING, "running requests move on"),
    }


def test_of_a_canary_of_which_nothing_is_known_nothing_passes():
    assert {state for state, _ in said(NOTHING).values()} == {State.UNKNOWN}


@pytest.mark.parametrize(
    ("change", "guard", "message"),
    [
        ({"probe": ProbeFacts(3, 0, 1, "llama-1: no key")}, Guard.CORRECT, "llama-1: no key"),
        ({"probe": ProbeFacts(0, 0, 0, "probes are off")}, Guard.CORRECT, "probes are off"),
        ({"unasked": 1}, Guard.CORRECT, "1 pod yet to answer"),
        ({"recent": Tally(drafts=50, per_position=(20.0,))}, Guard.ACCEPTING, "fewer than 200 drafts"),
        ({"recent": Tally(http_requests=3)}, Guard.ACCEPTING, "nothing drafted"),
        ({"recent": Tally(drafts=400, per_position=(200.0,))}, Guard.ERRORS, "no requests of late"),
    ],
)
def test_what_is_missing_is_said(change, guard, message):
    assert said(replace(HEALTHY, **change))[guard] == (State.UNKNOWN, message)


def test_an_unknown_agreement_is_shown_and_holds_nothing():
    unknown = replace(HEALTHY, agreement=None)
    assert said(unknown)[Guard.CORRECT] == (State.PASSING, "answers are sane; agreement with stable unknown")
    assert first_failure(unknown, HEALTHY) is None


def test_a_guard_that_fails_says_what_ends_the_canary():
    broken = replace(HEALTHY, agreement=replace(AGREES, canary=0.04))
    failure = first_failure(broken, HEALTHY)
    assert said(broken, HEALTHY)[Guard.CORRECT] == (State.FAILING, failure.message)


@pytest.mark.parametrize(
    ("moved", "reworded"),
    [
        ({"recent": replace(HEALTHY.recent, per_position=(260.0,))}, False),
        ({"recent": replace(HEALTHY.recent, per_position=(200.0,))}, True),
        ({"agreement": replace(AGREES, canary=0.94)}, False),
        ({"agreement": replace(AGREES, canary=0.8)}, True),
        ({"pods": (replace(POD, restarts=1),)}, True),
    ],
)
def test_a_message_is_worded_anew_when_its_numbers_have_moved_beyond_noise(moved, reworded):
    before = {str(guard): message for guard, (_, message) in said(HEALTHY).items()}
    later = {str(guard): message for guard, (_, message) in said(replace(HEALTHY, **moved), None, before).items()}
    assert (later != before) == reworded
