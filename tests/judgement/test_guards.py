from dataclasses import replace

import pytest

from specfleet.judgement.agreement import Agreement
from specfleet.judgement.guards import ArmFacts, Fit, Guard, PodFacts, ProbeFacts, first_failure
from specfleet.judgement.questions import PROMPTS
from specfleet.telemetry.counters import Tally

POD = PodFacts("llama-9d2zx4kv-abcde", ready=True, restarts=0, trouble="")
HEALTHY = ArmFacts(
    pods=(POD,),
    recent=Tally(drafts=400, draft_tokens=1200, accepted=500, per_position=(280.0, 140.0, 80.0), speculating=True),
    last=Tally(http_requests=100, http_errors=0),
    running=3,
    probe=ProbeFacts(passed=2, failed=0, unknown=0, message=""),
    stalled_seconds=0.0,
)
CRASHED = replace(HEALTHY, pods=(POD, replace(POD, ready=False, restarts=1, trouble="CrashLoopBackOff: exit code 1")))
WRONG = replace(HEALTHY, probe=ProbeFacts(1, 1, 0, 'asked "2+2=", got "!!!!"'))
DEAF = replace(HEALTHY, recent=replace(HEALTHY.recent, per_position=(39.0, 0.0, 0.0)))
ERRING = replace(HEALTHY, last=Tally(http_requests=80, http_errors=6))
CRAMPED = replace(HEALTHY, fit=Fit(canary=149_760, stable=174_720, predicted=3))
STUCK = replace(HEALTHY, stalled_seconds=30.0)


def test_a_healthy_canary_fails_nothing() -> None:
    assert first_failure(HEALTHY, HEALTHY) is None
    assert first_failure(HEALTHY, None) is None


@pytest.mark.parametrize(
    ("canary", "guard", "reason", "hard", "message"),
    [
        (CRASHED, Guard.ALIVE, "CanaryDead", True, f"pod {POD.name} restarted 1 time, CrashLoopBackOff: exit code 1"),
        (WRONG, Guard.CORRECT, "CanaryIncorrect", True, '1 of 2 probes failed: asked "2+2=", got "!!!!"'),
        (
            CRAMPED,
            Guard.FITS,
            "CanaryDoesNotFit",
            False,
            "149760 tokens of KV cache in a pod where stable has 174720: 14.3 % less, where 3 % were expected at most",
        ),
        (
            DEAF,
            Guard.ACCEPTING,
            "CanaryNotAccepting",
            False,
            "first drafted token accepted in 9.8 % of the last 400 drafts, below 10 %",
        ),
        (
            ERRING,
            Guard.ERRORS,
            "CanaryErroring",
            True,
            "6 of 80 requests in the last scrape answered 5xx: 7.5 %, above 5 %",
        ),
        (STUCK, Guard.PROGRESS, "CanaryStuck", True, "no engine step for 30 s with 3 requests running"),
    ],
)
def test_each_guard_says_what_it_saw(canary: ArmFacts, guard: Guard, reason: str, hard: bool, message: str) -> None:
    failure = first_failure(canary, HEALTHY)
    assert failure is not None
    assert (failure.guard, failure.reason, failure.hard, failure.message) == (guard, reason, hard, message)


def test_the_first_guard_in_order_is_the_one_named() -> None:
    everything = ArmFacts(CRASHED.pods, DEAF.recent, ERRING.last, 3, WRONG.probe, 60.0, CRAMPED.fit)
    seen = []
    for healed in ("pods", "probe", "fit", "recent", "last", "stalled_seconds"):
        failure = first_failure(everything, HEALTHY)
        assert failure is not None
        seen.append(failure.guard)
        everything = replace(everything, **{healed: getattr(HEALTHY, healed)})
    assert seen == list(Guard)
    assert first_failure(everything, HEALTHY) is None


@pytest.mark.parametrize(("restarts", "dead"), [(0, False), (1, False), (2, True)])
def test_one_restart_is_forgiven(restarts: int, dead: bool) -> None:
    canary = replace(HEALTHY, pods=(replace(POD, restarts=restarts),))
    assert (first_failure(canary, HEALTHY) is not None) == dead


@pytest.mark.parametrize("trouble", ["ImagePullBackOff: not found", "Unschedulable: 0/3 nodes", "Evicted"])
def test_a_pod_that_cannot_start_or_was_evicted_is_not_a_crash(trouble: str) -> None:
    assert first_failure(replace(HEALTHY, pods=(replace(POD, ready=False, trouble=trouble),)), HEALTHY) is None


def test_probes_that_could_not_be_asked_fail_nothing() -> None:
    assert first_failure(replace(HEALTHY, probe=ProbeFacts(0, 0, 3, "401")), HEALTHY) is None


def test_too_few_drafts_say_nothing() -> None:
    few = replace(HEALTHY, recent=Tally(drafts=199, per_position=(0.0,), speculating=True))
    assert first_failure(few, HEALTHY) is None
    assert first_failure(replace(HEALTHY, recent=replace(few.recent, drafts=200)), HEALTHY) is not None


def test_a_canary_without_speculation_cannot_fail_to_accept() -> None:
    assert first_failure(replace(HEALTHY, recent=Tally(decode_outputs=1000)), HEALTHY) is None


def test_what_stable_suffers_too_is_not_the_canarys_fault() -> None:
    assert first_failure(DEAF, DEAF) is None
    assert first_failure(ERRING, ERRING) is None
    assert first_failure(STUCK, STUCK) is not None
    assert first_failure(WRONG, WRONG) is not None


def test_a_stable_arm_of_which_too_little_is_known_excuses_nothing() -> None:
    unsure = replace(DEAF, recent=replace(DEAF.recent, drafts=100, per_position=(1.0,)))
    assert first_failure(DEAF, unsure) is not None
    assert first_failure(ERRING, replace(HEALTHY, last=None)) is not None


@pytest.mark.parametrize(
    ("requests", "errors", "fails"), [(10, 4, False), (100, 5, False), (99, 5, True), (0, 0, False)]
)
def test_errors_need_a_share_and_a_number(requests: float, errors: float, fails: bool) -> None:
    canary = replace(HEALTHY, last=Tally(http_requests=requests, http_errors=errors))
    assert (first_failure(canary, HEALTHY) is not None) == fails


@pytest.mark.parametrize(
    ("requests", "errors", "excused"),
    [(12, 1, False), (1, 1, False), (2, 1, False), (12, 3, False), (2, 2, True), (3, 2, True), (12, 9, True)],
)
def test_stable_excuses_a_canary_that_fails_all_requests_where_it_fails_many_too_and_not_by_chance(
    requests: float, errors: float, excused: bool
) -> None:
    canary = replace(HEALTHY, last=Tally(http_requests=12, http_errors=12))
    stable = replace(HEALTHY, last=Tally(http_requests=requests, http_errors=errors))
    assert (first_failure(canary, stable) is None) == excused


def test_before_a_second_scrape_there_are_no_errors_to_see() -> None:
    assert first_failure(replace(HEALTHY, last=None, running=None), HEALTHY) is None


@pytest.mark.parametrize(("predicted", "canary", "fails"), [
    (0, 95, False), (0, 94.9, True), (0, 200, False), (20, 75, False), (20, 74.9, True), (50, 50, False),
])  # fmt: skip
def test_a_kv_cache_may_be_smaller_by_what_was_predicted_and_five_points(
    predicted: float, canary: float, fails: bool
) -> None:
    tight = replace(HEALTHY, fit=Fit(canary, 100, predicted))
    assert (first_failure(tight, HEALTHY) is not None) == fails


@pytest.mark.parametrize("fit", [Fit(None, 100, 0), Fit(1, None, 0), Fit(1, 100, None), Fit(1, 0, 0), None])
def test_a_kv_cache_of_which_too_little_is_known_fails_nothing(fit: Fit | None) -> None:
    assert first_failure(replace(HEALTHY, fit=fit), HEALTHY) is None


def test_answers_that_are_not_stables_fail_as_incorrect_with_both_numbers_and_the_prompt() -> None:
    found = Agreement("llama-1", 0.04, 0.97, 1, "fibonacci " * 9, "def fib(n):")
    failure = first_failure(replace(HEALTHY, agreement=found), HEALTHY)
    assert failure is not None
    assert (failure.guard, failure.reason, failure.hard) == (Guard.CORRECT, "CanaryIncorrect", True)
    assert failure.message == (
        "greedy answers of llama-1 agree by 4 % with stable's, whose own agree by 97 %; to "
        f"{PROMPTS[1]!r}: 'fibonacci fibonacci fibonacci fibonacci …' where stable says 'def fib(n):'"
    )


@pytest.mark.parametrize(("canary", "stable"), [(0.5, 1.0), (0.1, 0.5), (0.0, 0.4)])
def test_answers_within_half_of_stables_own_agreement_are_no_fault(canary: float, stable: float) -> None:
    found = Agreement("llama-1", canary, stable, 0, "a", "b")
    assert first_failure(replace(HEALTHY, agreement=found), HEALTHY) is None
