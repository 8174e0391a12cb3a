"""The traps of vLLM's counters: what they make of a verdict, and that none of them passes for a proof."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from specfleet.judgement.judge import Policy, judge
from specfleet.judgement.verdict import Metric, Outcome, Verdict
from specfleet.telemetry.counters import COUNTERS, Tally
from specfleet.telemetry.evidence import EMPTY, Arm, Block, Evidence, from_json
from specfleet.telemetry.page import parse

POLICY = Policy(speed_percent=5, acceptance_points=5, error_points=2, max_blocks=120)
TIMED = replace(POLICY, ttft_limit=2.0)
PAGE = Path(__file__).parents[1] / "telemetry" / "pages" / "draft-k4-greedy20.txt"


def real() -> Tally:
    """What a real server counted of 20 requests of 100 tokens each, drafting 4, all of them timed and in time."""
    sample = parse(PAGE.read_bytes())
    values = [getattr(sample, counter) or 0.0 for counter in COUNTERS]
    positions = sample.accepted_per_position
    return Tally(*values, seconds=60, timed=20, per_position=positions, speculating=True)


REAL = real()


def evidence(
    stable: Tally, canary: Tally, blocks: int = 20, bound: float | None = 1.0, so_far: Evidence = EMPTY
) -> Evidence:
    """Four pods of stable and one of the canary do so much in each block, with a little noise in time."""
    for number in range(blocks):
        noisy = replace(canary, decode_seconds=canary.decode_seconds * (1 + 0.01 * math.sin(2.3 * number)))
        so_far = so_far.add(Block({f"s{i}": stable for i in range(4)}, {"c": noisy}, bound))
    return so_far


def outcomes(verdict: Verdict) -> dict[str, str]:
    return {each.metric.value: each.outcome.value for each in verdict.metrics}


def test_two_real_servers_are_compared() -> None:
    verdict = judge(evidence(REAL, REAL), True, TIMED)
    assert outcomes(verdict) == dict.fromkeys(("speed", "acceptance", "errors", "ttft"), "NonInferior")
    assert verdict.proven


# Phantom drafts, and shares of the steps that draft


def phantom(share: float) -> Tally:
    """So many drafts more, of four tokens none of which is accepted (vllm#45237)."""
    return replace(REAL, drafts=REAL.drafts * (1 + share), draft_tokens=REAL.draft_tokens * (1 + share))


def test_phantom_drafts_of_one_arm_make_acceptance_no_comparison_and_leave_speed_alone() -> None:
    verdict = judge(evidence(phantom(0.3), REAL), True, POLICY)
    acceptance = verdict.of(Metric.ACCEPTANCE)
    assert (acceptance.outcome, acceptance.estimate) == (Outcome.INSUFFICIENT_OVERLAP, None)
    assert acceptance.message == (
        "acceptance: drafts in 100 % of the steps on canary, 130 % on stable, phantom ones among them"
    )
    assert verdict.of(Metric.SPEED).outcome is Outcome.NON_INFERIOR
    assert not verdict.proven


def test_phantom_drafts_of_both_arms_alike_are_no_obstacle() -> None:
    assert judge(evidence(phantom(0.3), phantom(0.3)), True, POLICY).proven


def test_phantom_drafts_of_the_canary_raise_no_alarm() -> None:
    assert judge(evidence(REAL, phantom(1.0)), True, POLICY).of(Metric.ACCEPTANCE).outcome is not Outcome.REGRESSION


def test_an_arm_that_drafts_in_fewer_of_its_steps_is_not_compared_in_acceptance() -> None:
    """A schedule's 0 at the other arm's load, or another runner's lookups."""
    half = replace(REAL, drafts=567, draft_tokens=2268, accepted=426, decode_outputs=1134 + 426)
    acceptance = judge(evidence(half, REAL), True, POLICY).of(Metric.ACCEPTANCE)
    assert acceptance.outcome is Outcome.INSUFFICIENT_OVERLAP
    assert acceptance.message == "acceptance: drafts in 100 % of the steps on canary, 36 % on stable"


# Schedules


def scheduled(tokens: float) -> Tally:
    """The same text drafted at so many tokens in the mean, none beyond the second of which is accepted: the rate is
    another than that of 4, the first position is not."""
    first, second = REAL.per_position[:2]
    generated = REAL.drafts + REAL.first_tokens + first + second
    return replace(REAL, draft_tokens=tokens * REAL.drafts, accepted=first + second, generation_tokens=generated,
                   per_position=(first, second, 0, 0))  # fmt: skip


def test_under_a_schedule_acceptance_is_of_the_first_token_which_every_draft_has() -> None:
    pair = evidence(scheduled(3), REAL)
    by_rate, by_first = (
        judge(pair, True, replace(POLICY, scheduled=kind)).of(Metric.ACCEPTANCE) for kind in (False, True)
    )
    assert by_rate.estimate == pytest.approx(100 * (852 / 4536 - 622 / 3402))
    assert by_first.estimate == pytest.approx(0)
    assert by_first.outcome is Outcome.NON_INFERIOR
    assert "of the first token" in by_first.message


def test_under_a_schedule_arms_whose_drafts_differ_by_half_are_not_compared() -> None:
    acceptance = judge(evidence(scheduled(2), REAL), True, replace(POLICY, scheduled=True)).of(Metric.ACCEPTANCE)
    assert acceptance.outcome is Outcome.INSUFFICIENT_OVERLAP
    assert acceptance.message == "acceptance: drafts of 4.0 tokens on canary, 2.0 on stable"


def test_blocks_of_the_former_format_have_no_first_position_and_are_not_read_as_zero() -> None:
    old = evidence(REAL, REAL)
    stripped = [(replace(b.stable, per_position=()), replace(b.canary, per_position=())) for b in old.blocks]
    bare = replace(
        old, blocks=tuple(replace(b, stable=s, canary=c) for b, (s, c) in zip(old.blocks, stripped, strict=True))
    )
    acceptance = judge(bare, True, replace(POLICY, scheduled=True)).of(Metric.ACCEPTANCE)
    assert (acceptance.outcome, acceptance.blocks) == (Outcome.INSUFFICIENT_DATA, 0)


# Adaptive verification


def test_acceptance_that_the_counters_hide_is_no_gate_and_says_why() -> None:
    """Drafts that were trimmed before verification count as drafted in full (vllm#47808)."""
    trimmed = replace(REAL, draft_tokens=3 * REAL.draft_tokens)
    verdict = judge(evidence(REAL, trimmed), True, replace(POLICY, hidden=True))
    assert verdict.of(Metric.ACCEPTANCE).outcome is Outcome.NOT_COMPARABLE
    assert verdict.of(Metric.ACCEPTANCE).message.startswith("acceptance: vLLM counts draft tokens that it does not")
    assert verdict.proven


# The identity of the counters


@pytest.mark.parametrize("arm", ["stable", "canary"])
def test_counters_that_contradict_each_other_hold_what_is_read_from_them(arm: str) -> None:
    wrong = replace(REAL, generation_tokens=0.8 * REAL.generation_tokens)
    pair = evidence(wrong, REAL) if arm == "stable" else evidence(REAL, wrong)
    verdict = judge(pair, True, TIMED)
    assert outcomes(verdict) == {
        "speed": "Inconsistent", "acceptance": "Inconsistent", "errors": "NonInferior", "ttft": "NonInferior",
    }  # fmt: skip
    assert verdict.of(Metric.SPEED).message == (
        f"speed: outputs, first and accepted tokens on {arm} are +25 % off the generated ones"
    )
    assert not verdict.proven
    assert verdict.regression is None


# Prompts


def test_an_arm_with_far_longer_prompts_is_not_compared_in_speed() -> None:
    long = replace(REAL, prompt_tokens=3 * REAL.prompt_tokens)
    verdict = judge(evidence(REAL, long), True, TIMED)
    for metric in (Metric.SPEED, Metric.TTFT):
        assert verdict.of(metric).outcome is Outcome.INSUFFICIENT_OVERLAP
    assert "0.2 prompt tokens to a generated one on canary, 0.1 on stable" in verdict.of(Metric.SPEED).message
    assert not verdict.proven


# Time to the first token


def late(number: float, timed: float = 20) -> Tally:
    return replace(REAL, timed=timed, late=number)


def test_without_a_limit_first_tokens_are_neither_judged_nor_shown() -> None:
    verdict = judge(evidence(late(0), late(20)), True, POLICY)
    assert outcomes(verdict) == dict.fromkeys(("speed", "acceptance", "errors"), "NonInferior")
    assert verdict.proven


def test_a_canary_whose_first_tokens_are_late_regresses_and_the_bound_that_was_used_is_said() -> None:
    verdict = judge(evidence(late(0), late(8)), True, TIMED)
    regression = verdict.regression
    assert regression is not None
    assert regression.metric is Metric.TTFT
    assert regression.estimate == pytest.approx(-40)
    assert "(+ is fewer beyond 1 s, the bucket below 2 s) against a margin of 2, 20 blocks" in regression.message


def test_a_limit_that_is_a_bucket_is_named_alone() -> None:
    verdict = judge(evidence(late(1), late(1)), True, replace(POLICY, ttft_limit=1.0))
    assert "(+ is fewer beyond 1 s) against" in verdict.of(Metric.TTFT).message


@pytest.mark.parametrize(("bound", "timed"), [(None, 0.0), (1.0, 0.0), (2.5, 20.0)])
def test_first_tokens_that_nobody_timed_within_the_limit_hold(bound: float | None, timed: float) -> None:
    """No histogram; none on one arm; one that was read for a looser limit."""
    verdict = judge(evidence(late(0, timed), late(0, timed), bound=bound), True, TIMED)
    ttft = verdict.of(Metric.TTFT)
    assert (ttft.outcome, ttft.estimate) == (Outcome.NO_TRAFFIC, None)
    assert not verdict.proven
    assert "ttft: no " in verdict.holding


def test_a_histogram_on_one_arm_only_is_no_pass() -> None:
    verdict = judge(evidence(late(0), late(0, timed=0)), True, TIMED)
    assert verdict.of(Metric.TTFT).message == "ttft: no timed first tokens on canary in 20 blocks"
    assert not verdict.proven


def test_after_the_limit_has_changed_first_tokens_are_gathered_anew_and_the_rest_goes_on() -> None:
    changed = evidence(late(0), late(0), blocks=3, bound=0.5, so_far=evidence(late(0), late(0)))
    verdict = judge(changed, True, replace(POLICY, ttft_limit=0.5))
    assert verdict.of(Metric.TTFT).message == "ttft: 3 of 8 blocks"
    assert verdict.of(Metric.SPEED).blocks == 23


def test_a_canary_that_is_given_less_to_do_is_not_compared_in_first_tokens() -> None:
    spared = replace(REAL, first_tokens=4, iterations=1154, decode_outputs=227, accepted=170, generation_tokens=401)
    ttft = judge(evidence(late(1), spared), True, TIMED).of(Metric.TTFT)
    assert ttft.outcome is Outcome.INSUFFICIENT_OVERLAP


def test_only_metrics_that_can_fail_share_the_false_alarms() -> None:
    """The alarm's bound widens with each metric that may raise it; the proof's does not."""
    pair = evidence(late(1), late(1))
    alone, beside = (judge(pair, True, policy).of(Metric.SPEED) for policy in (POLICY, TIMED))
    assert alone.upper is not None
    assert beside.upper is not None
    assert alone.upper < beside.upper
    assert alone.lower == beside.lower


def test_a_verdict_on_first_tokens_survives_being_stored() -> None:
    pair = evidence(late(1), late(2))
    assert judge(from_json(pair.to_json()), True, TIMED) == judge(pair, True, TIMED)
    assert pair.pods[Arm.CANARY]["c"].late == 40
