import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.judgement.judge import Policy, judge, resolvable_margin
from specfleet.judgement.verdict import Metric, Outcome, Verdict
from specfleet.telemetry.counters import Tally
from specfleet.telemetry.evidence import EMPTY, Block, Evidence, from_json

POLICY = Policy(speed_percent=5, acceptance_points=5, error_points=1, max_blocks=120)
# A pod's minute: 8 requests at once, 30 tokens/s each, acceptance 60 %.
BUSY = Tally(
    drafts=6000, draft_tokens=18_000, accepted=10_800, decode_outputs=6000, decode_seconds=560, first_tokens=60,
    iterations=750, finished=60, http_requests=60, seconds=60, speculating=True,
)  # fmt: skip
OFF = replace(BUSY, drafts=0, draft_tokens=0, accepted=0, speculating=False)
POD_NAMES = ("s1", "s2", "s3", "s4", "c1")


def evidence(stable: Tally, canary: Tally, blocks: int, pods: int = 4, canaries: int = 1) -> Evidence:
    """The same block over and over, with a little noise in time so that there is a variance."""
    total = EMPTY
    for number in range(blocks):
        wobble = 1 + 0.01 * math.sin(2.3 * number)
        noisy = replace(canary, decode_seconds=canary.decode_seconds * wobble)
        total = total.add(
            Block({f"s{i}": stable for i in range(pods)}, {f"c{i}": noisy for i in range(canaries)}),
        )
    return total


def outcomes(verdict: Verdict) -> dict[str, str]:
    return {each.metric.value: each.outcome.value for each in verdict.metrics}


def test_no_evidence_is_insufficient_and_says_how_much_is_missing() -> None:
    verdict = judge(EMPTY, True, POLICY)
    assert set(outcomes(verdict).values()) == {"InsufficientData"}
    assert verdict.holding == "speed: 0 of 8 blocks; acceptance: 0 of 8 blocks; errors: 0 of 8 blocks"
    assert not verdict.proven


def test_equal_arms_are_proven_after_enough_blocks_with_their_numbers() -> None:
    verdict = judge(evidence(BUSY, BUSY, 20), True, POLICY)
    assert verdict.proven
    assert verdict.of(Metric.ACCEPTANCE).message == (
        "acceptance +0.0 points [-1.6, +2.2] against a margin of 5, 20 blocks"
    )
    assert verdict.of(Metric.SPEED).message.endswith("against a margin of 5 %, 20 blocks")


def through_steps(worse: float, minutes: int = 60) -> Evidence:
    """One canary pod gets a twentieth of the requests for an hour and then half of them, while everybody's acceptance
    rises from 60 to 75 % and steps take a fifth longer. `worse` are points that the canary's is below stable's."""
    total = EMPTY
    for number in range(2 * minutes):
        late, part = number >= minutes, 0.5 if number >= minutes else 0.05
        whole = replace(BUSY, decode_seconds=560 * (1.2 if late else 1.0) * (1 + 0.01 * math.sin(2.3 * number)))
        rate = 0.75 if late else 0.6
        arms = {"s": (1 - part, rate), "c": (part, rate - worse / 100)}
        stable, canary = ({f"{arm}1": times(whole, share, accepted)} for arm, (share, accepted) in arms.items())
        total = total.add(Block(stable, canary))
    return total


def times(tally: Tally, share: float, rate: float) -> Tally:
    """A share of what it counted, with another acceptance."""
    numbers = Tally(*(value * share for value in tally.numbers()), speculating=True)
    return replace(numbers, accepted=numbers.draft_tokens * rate)


@pytest.mark.parametrize("blocks", [1, 7])
def test_below_the_least_blocks_nothing_is_said(blocks: int) -> None:
    verdict = judge(evidence(BUSY, replace(BUSY, accepted=100), blocks), True, POLICY)
    assert verdict.regression is None
    assert verdict.of(Metric.ACCEPTANCE).message == f"acceptance: {blocks} of 8 blocks"


def test_too_few_requests_say_nothing_however_many_blocks() -> None:
    rare = replace(BUSY, finished=1, http_requests=1)
    verdict = judge(evidence(BUSY, rare, 20), True, POLICY)
    assert set(outcomes(verdict).values()) == {"InsufficientData"}
    assert verdict.of(Metric.SPEED).message == "speed: 20 of 30 requests on canary"


def test_a_drop_of_acceptance_is_a_regression_with_its_interval() -> None:
    verdict = judge(evidence(BUSY, replace(BUSY, accepted=BUSY.accepted - 2160), 12, canaries=4), True, POLICY)
    acceptance = verdict.of(Metric.ACCEPTANCE)
    assert verdict.regression is not None
    assert acceptance.outcome is Outcome.REGRESSION
    assert acceptance.estimate == pytest.approx(-12)
    assert acceptance.lower is not None
    assert acceptance.upper is not None
    assert acceptance.lower < -12 < acceptance.upper < -5


def test_acceptance_is_no_gate_where_the_arms_draft_differently() -> None:
    shorter = replace(BUSY, draft_tokens=12_000, accepted=9000, decode_seconds=500)
    verdict = judge(evidence(replace(BUSY, accepted=9000), shorter, 20), False, POLICY)
    assert verdict.of(Metric.ACCEPTANCE).outcome is Outcome.NOT_COMPARABLE
    assert verdict.proven


def test_two_arms_without_speculation_are_judged_by_speed_and_errors() -> None:
    verdict = judge(evidence(OFF, OFF, 20), True, POLICY)
    assert outcomes(verdict) == {"speed": "NonInferior", "acceptance": "NotComparable", "errors": "NonInferior"}
    assert verdict.proven


def test_a_canary_that_should_draft_and_does_not_is_not_proven() -> None:
    verdict = judge(evidence(BUSY, OFF, 20), True, POLICY)
    assert verdict.of(Metric.ACCEPTANCE).outcome is Outcome.NO_TRAFFIC
    assert verdict.of(Metric.ACCEPTANCE).message == "acceptance: no drafts on canary in 20 blocks"
    assert not verdict.proven


def test_speed_compares_tokens_and_not_steps() -> None:
    """Speculation makes steps longer and tokens faster: the time between outputs alone would have the wrong sign."""
    slower_steps = replace(BUSY, decode_seconds=1.5 * OFF.decode_seconds)
    speed = judge(evidence(OFF, slower_steps, 20), False, POLICY).of(Metric.SPEED)
    assert speed.outcome is Outcome.NON_INFERIOR
    assert speed.estimate == pytest.approx(100 * (2.8 / 1.5 - 1), abs=1)


@pytest.mark.parametrize("worse", [0, 9])
def test_drift_is_no_difference_while_the_canarys_share_grows(worse: float) -> None:
    """Pooled hours would make the canary, most of whose requests came late, 8 points better than it is."""
    verdict = judge(through_steps(worse), True, POLICY)
    assert verdict.of(Metric.ACCEPTANCE).estimate == pytest.approx(-worse, abs=0.1)
    slower = -3 * worse / (1 + 3 * 0.7)  # in percent: three draft tokens a step
    assert verdict.of(Metric.SPEED).estimate == pytest.approx(slower, abs=0.5)


def test_speed_is_in_percent_of_stable() -> None:
    slower = replace(BUSY, decode_seconds=BUSY.decode_seconds / 0.8)
    speed = judge(evidence(BUSY, slower, 20), True, POLICY).of(Metric.SPEED)
    assert (speed.outcome, speed.unit) == (Outcome.REGRESSION, "%")
    assert speed.estimate == pytest.approx(-20, abs=0.2)


def test_an_idle_canary_has_no_traffic_which_is_neither_failure_nor_success() -> None:
    verdict = judge(evidence(BUSY, Tally(seconds=60, speculating=True), 20), True, POLICY)
    assert set(outcomes(verdict).values()) == {"NoTraffic"}
    assert verdict.regression is None
    assert not verdict.proven
    assert "speed: no decoding on canary in 20 blocks" in verdict.holding


def test_blocks_in_which_the_canary_was_idle_are_no_looks() -> None:
    one = evidence(BUSY, replace(BUSY, finished=600, http_requests=600), 1)
    idle = Block({f"s{i}": BUSY for i in range(4)}, {"c0": Tally(seconds=60, speculating=True)})
    for _ in range(20):
        one = one.add(idle)
    assert judge(one, True, POLICY).of(Metric.SPEED).message == "speed: 1 of 8 blocks"


def test_a_canary_that_is_given_less_to_do_is_not_compared_in_speed() -> None:
    spared = replace(
        BUSY, first_tokens=10, finished=10, http_requests=10, iterations=750, decode_outputs=1000, drafts=1000,
        draft_tokens=3000, accepted=1800, decode_seconds=60,
    )  # fmt: skip
    verdict = judge(evidence(BUSY, spared, 60), True, POLICY)
    assert verdict.of(Metric.SPEED).outcome is Outcome.INSUFFICIENT_OVERLAP
    assert verdict.of(Metric.SPEED).message == (
        "speed: mean batch 1.3 on canary, 8.0 on stable, about alike in 0 of 60 blocks"
    )
    assert verdict.of(Metric.ACCEPTANCE).outcome is Outcome.NON_INFERIOR
    assert not verdict.proven


def test_blocks_in_which_the_canary_had_little_to_do_say_nothing_of_its_speed() -> None:
    """An hour with a fifth of stable's requests, in small and therefore fast batches, and then an hour with as many."""
    slower = replace(BUSY, decode_seconds=BUSY.decode_seconds * 1.06)
    spared = replace(
        BUSY, first_tokens=12, finished=12, http_requests=12, iterations=1000, decode_outputs=1200, drafts=1200,
        draft_tokens=3600, accepted=2160, decode_seconds=75,
    )  # fmt: skip
    total = evidence(BUSY, spared, 60)
    for number in range(60):
        noisy = replace(slower, decode_seconds=slower.decode_seconds * (1 + 0.01 * math.sin(2.3 * number)))
        total = total.add(Block({f"s{i}": BUSY for i in range(4)}, {"c0": noisy}))
    speed = judge(total, True, POLICY).of(Metric.SPEED)
    assert speed.estimate == pytest.approx(100 / 1.06 - 100, abs=0.1)
    assert speed.blocks == 60
    assert speed.outcome is not Outcome.NON_INFERIOR
    assert judge(total, True, POLICY).of(Metric.ERRORS).blocks == 120


@pytest.mark.parametrize(("factor", "outcome"), [(2.0, Outcome.NON_INFERIOR), (0.5, Outcome.REGRESSION)])
def test_a_batch_that_follows_from_the_canarys_own_speed_is_compared(factor: float, outcome: Outcome) -> None:
    """At the same requests per second a canary that is twice as fast has half as many of them at a time."""
    canary = replace(BUSY, decode_seconds=BUSY.decode_seconds / factor, iterations=BUSY.iterations * factor)
    assert judge(evidence(BUSY, canary, 20), True, POLICY).of(Metric.SPEED).outcome is outcome


def test_more_errors_are_worse_and_say_so() -> None:
    verdict = judge(evidence(BUSY, replace(BUSY, http_errors=6), 20), True, POLICY)
    errors = verdict.of(Metric.ERRORS)
    assert errors.outcome is Outcome.REGRESSION
    assert errors.estimate == pytest.approx(-10)
    assert errors.message.startswith("errors -10.0 points [")
    assert "(+ is fewer) against a margin of 1, 20 blocks" in errors.message
    assert verdict.regression is errors


def test_no_error_in_a_few_requests_proves_little() -> None:
    """60 clean requests leave room for 5 % errors: the interval must not be surer than that for want of variance."""
    few = replace(BUSY, finished=6, http_requests=6)
    assert judge(evidence(few, few, 10), True, POLICY).of(Metric.ERRORS).outcome is Outcome.INCONCLUSIVE
    assert judge(evidence(few, few, 90), True, POLICY).of(Metric.ERRORS).outcome is Outcome.NON_INFERIOR


def test_pods_that_differ_widen_the_interval() -> None:
    def width(spread: int) -> float:
        stable = {f"s{i}": replace(BUSY, accepted=BUSY.accepted + spread * (-1) ** i) for i in range(4)}
        total = EMPTY
        for _ in range(20):
            total = total.add(Block(stable, {"c": BUSY}))
        acceptance = judge(total, True, POLICY).of(Metric.ACCEPTANCE)
        assert acceptance.upper is not None
        assert acceptance.lower is not None
        return acceptance.upper - acceptance.lower

    assert width(0) < width(200) < width(600)


def test_a_leaver_that_did_little_does_not_pass_for_a_second_canary_pod() -> None:
    both = evidence(BUSY, BUSY, 20, canaries=2)
    lone = evidence(BUSY, BUSY, 20).add(
        Block({"s0": BUSY}, {"c0": BUSY, "gone": replace(BUSY, draft_tokens=1, accepted=0)})
    )
    two, one = (judge(each, True, POLICY).of(Metric.ACCEPTANCE).lower for each in (both, lone))
    assert two is not None
    assert one is not None
    assert one < two


@pytest.mark.parametrize("metric", list(Metric))
def test_more_pods_resolve_a_smaller_margin(metric: Metric) -> None:
    assert resolvable_margin(1, 1, metric) > resolvable_margin(1, 4, metric) > resolvable_margin(4, 4, metric) > 0
    assert resolvable_margin(0, 4, metric) == math.inf


def test_the_resolvable_margin_follows_from_the_shipped_spread() -> None:
    assert resolvable_margin(1, 4, Metric.ACCEPTANCE) == pytest.approx((1.895 + 0.84) * math.sqrt(1.25), abs=0.01)
    assert resolvable_margin(1, 4, Metric.SPEED) == pytest.approx(2 * resolvable_margin(1, 4, Metric.ACCEPTANCE))


def apart(points: float, blocks: int = 20, pods: int = 4) -> Evidence:
    """Stable's pods differ in acceptance: a standard deviation of about so many points."""
    shift = points / 100 * BUSY.draft_tokens * math.sqrt((pods - 1) / pods)
    total = EMPTY
    for number in range(blocks):
        wobble = 50 * math.sin(2.3 * number)
        stable = {f"s{i}": replace(BUSY, accepted=BUSY.accepted + shift * (-1) ** i) for i in range(pods)}
        total = total.add(Block(stable, {"c": replace(BUSY, accepted=BUSY.accepted + wobble)}))
    return total


def test_measured_pods_resolve_what_they_differ_by_and_not_what_was_shipped() -> None:
    shipped = resolvable_margin(1, 4, Metric.ACCEPTANCE)
    alike, differing = (resolvable_margin(1, 4, Metric.ACCEPTANCE, apart(points), POLICY) for points in (0, 3))
    assert alike < shipped < differing
    assert resolvable_margin(4, 4, Metric.ACCEPTANCE, apart(3), POLICY) < differing


def test_the_resolvable_margin_has_room_for_the_interval_after_the_longest_analysis() -> None:
    without = resolvable_margin(1, 4, Metric.ACCEPTANCE, apart(0))
    short, long = (
        resolvable_margin(1, 4, Metric.ACCEPTANCE, apart(0), replace(POLICY, max_blocks=blocks)) for blocks in (20, 120)
    )
    assert without < long < short


def test_too_few_blocks_measure_the_pods_but_no_interval() -> None:
    few = apart(3, blocks=POLICY.min_blocks - 1)
    assert resolvable_margin(1, 4, Metric.ACCEPTANCE, few, POLICY) == resolvable_margin(1, 4, Metric.ACCEPTANCE, few)


def test_an_equal_canary_is_proven_at_the_margin_that_measured_pods_resolve() -> None:
    """One that is as lucky as its pods: its estimate is 0."""
    total = apart(3, blocks=60)
    margin = resolvable_margin(1, 4, Metric.ACCEPTANCE, total, POLICY)
    assert judge(total, True, replace(POLICY, acceptance_points=margin)).of(Metric.ACCEPTANCE).outcome is (
        Outcome.NON_INFERIOR
    )
    shipped = resolvable_margin(1, 4, Metric.ACCEPTANCE)
    assert judge(total, True, replace(POLICY, acceptance_points=shipped)).of(Metric.ACCEPTANCE).outcome is (
        Outcome.INCONCLUSIVE
    )


def test_pods_that_contradict_the_shipped_spread_are_believed_more() -> None:
    """At 1.4 times it the shipped spread counts in full, at 1.6 half: the interval widens by more than the pods do."""

    def reach(points: float) -> float:
        acceptance = judge(apart(points, blocks=60), True, POLICY).of(Metric.ACCEPTANCE)
        assert acceptance.lower is not None
        assert acceptance.estimate is not None
        return acceptance.estimate - acceptance.lower

    believed, at_the_edge, doubted = reach(1.2), reach(1.4), reach(1.6)
    assert doubted - at_the_edge > 1.5 * (at_the_edge - believed)


def test_how_the_canarys_pods_differ_tells_of_the_fleet_too() -> None:
    """Two stable pods may be alike by chance. Where the canary's two are not, the interval is wider."""

    def reach(points: float) -> float:
        total = EMPTY
        for _ in range(20):
            shift = points / 100 * BUSY.draft_tokens
            canary = {f"c{sign}": replace(BUSY, accepted=BUSY.accepted + sign * shift) for sign in (-1, 1)}
            total = total.add(Block({"s1": BUSY, "s2": BUSY}, canary))
        acceptance = judge(total, True, POLICY).of(Metric.ACCEPTANCE)
        assert acceptance.lower is not None
        assert acceptance.estimate == pytest.approx(0.0)
        return -acceptance.lower

    assert reach(3) > 1.5 * reach(0)


counts = st.integers(0, 2000).map(float)
work = st.builds(
    lambda outputs, accepted, seconds, errors, requests: replace(
        BUSY, decode_outputs=outputs, drafts=outputs, draft_tokens=3 * outputs, accepted=min(accepted, 3 * outputs),
        decode_seconds=seconds, http_requests=requests, http_errors=min(errors, requests), finished=requests,
    ),
    counts, counts, counts, st.integers(0, 20).map(float), counts,
)  # fmt: skip
some_blocks = st.lists(st.fixed_dictionaries(dict.fromkeys(POD_NAMES, work)), min_size=1, max_size=14)


def gathered(rows: list[dict[str, Tally]], names: dict[str, str] | None = None) -> Evidence:
    total, names = EMPTY, names or {name: name for name in POD_NAMES}
    for row in rows:
        by_arm: list[dict[str, Tally]] = [
            {names[pod]: tally for pod, tally in row.items() if pod.startswith(arm)} for arm in "sc"
        ]
        total = total.add(Block(*by_arm))
    return total


def blurred(verdict: Verdict) -> list[Any]:
    return [(each.metric, each.outcome, pytest.approx(each.estimate, abs=1e-6)) for each in verdict.metrics]


@settings(max_examples=60, deadline=None)
@given(some_blocks, st.permutations(POD_NAMES[:4]))
def test_which_pod_is_which_does_not_matter(rows: list[dict[str, Tally]], order: list[str]) -> None:
    renamed = dict(zip(POD_NAMES[:4], order, strict=True)) | {"c1": "another"}
    assert blurred(judge(gathered(rows), True, POLICY)) == blurred(judge(gathered(rows, renamed), True, POLICY))


@settings(max_examples=60, deadline=None)
@given(some_blocks)
def test_a_verdict_survives_being_stored(rows: list[dict[str, Tally]]) -> None:
    total = gathered(rows)
    assert judge(from_json(total.to_json()), True, POLICY) == judge(total, True, POLICY)


RANK = {Outcome.REGRESSION: 0, Outcome.INCONCLUSIVE: 1, Outcome.NON_INFERIOR: 2}


@settings(max_examples=60, deadline=None)
@given(some_blocks, st.floats(0, 50), st.floats(0, 50))
def test_a_wider_margin_never_makes_a_verdict_worse(rows: list[dict[str, Tally]], one: float, other: float) -> None:
    narrow, wide = (
        judge(gathered(rows), True, Policy(margin, margin, margin, max_blocks=120)) for margin in sorted((one, other))
    )
    for before, after in zip(narrow.metrics, wide.metrics, strict=True):
        if before.outcome in RANK:
            assert RANK[after.outcome] >= RANK[before.outcome]
        else:
            assert after.outcome is before.outcome


@settings(max_examples=60, deadline=None)
@given(some_blocks, st.sampled_from(["decode_outputs", "decode_seconds", "http_requests", "finished"]))
def test_what_is_unknown_is_never_proven(rows: list[dict[str, Tally]], missing: str) -> None:
    blind = [
        {pod: replace(tally, **{missing: 0.0}) if pod == "c1" else tally for pod, tally in r.items()} for r in rows
    ]
    verdict = judge(gathered(blind), True, Policy(1e6, 1e6, 1e6, max_blocks=120))
    assert not verdict.proven
    assert verdict.holding
