"""What the judge promises about its errors, checked on made-up arms whose truth is known (seeds are fixed)."""

import math
from typing import Any

import pytest

from specfleet.judgement.judge import Policy, judge, resolvable_margin
from specfleet.judgement.verdict import Metric

REPLICATES = 40
LOOKS = range(8, 41, 2)


def policy(margin: float, errors: float = 1.0) -> Policy:
    return Policy(speed_percent=margin, acceptance_points=margin, error_points=errors, max_blocks=120)


def decided(arms: Any, policy: Policy, what: str, **truth: float) -> float:
    """Share of rollouts in which some look says `what`."""
    hits = 0
    for seed in range(REPLICATES):
        looks = (e for n, e in enumerate(arms(seed=seed, **truth).blocks(LOOKS[-1]), 1) if n in LOOKS)
        hits += any(getattr(judge(e, True, policy), what) for e in looks)
    return hits / REPLICATES


def test_equal_arms_raise_a_false_alarm_in_at_most_5_percent_even_without_a_margin(arms: Any) -> None:
    assert decided(arms, policy(0, errors=0), "regression") <= 0.05


def test_pods_that_differ_raise_a_false_alarm_in_at_most_8_percent_even_without_a_margin(arms: Any) -> None:
    truth = {"pod_effect": 1.8, "pod_speed": 2.0, "stable": 8, "canary": 2}
    assert decided(arms, policy(0, errors=0), "regression", **truth) <= 0.08


def test_an_equal_canary_of_as_many_pods_is_proven(arms: Any) -> None:
    assert decided(arms, policy(5), "proven", stable=4, canary=4) >= 0.95


def test_an_equal_canary_of_one_pod_is_proven_at_a_margin_it_can_resolve(arms: Any) -> None:
    margin = max(5, resolvable_margin(1, 4, Metric.SPEED))
    assert decided(arms, policy(margin), "proven", stable=4, canary=1) >= 0.9


def test_five_points_less_acceptance_are_found_and_never_proven(arms: Any) -> None:
    truth = {"gap": 5.0, "stable": 4, "canary": 4}
    assert decided(arms, policy(2), "regression", **truth) >= 0.95
    assert decided(arms, policy(3), "proven", **truth) == 0


def test_a_canary_that_is_worse_by_the_margin_is_hardly_ever_proven(arms: Any) -> None:
    assert decided(arms, policy(5), "proven", gap=5.0, stable=4, canary=4) <= 0.05


def test_a_clear_regression_of_one_pod_is_found_at_the_first_look(arms: Any) -> None:
    for truth in ({"gap": 12.0}, {"slower": 0.2}, {"error_share": 0.1}):
        evidence = arms(seed=3, **truth).after(10)
        assert judge(evidence, True, policy(5)).regression is not None, truth


def test_the_interval_narrows_with_blocks_to_what_pods_allow(arms: Any) -> None:
    def width(blocks: int) -> float:
        speed = judge(arms(seed=5).after(blocks), True, policy(5)).metrics[0]
        assert speed.lower is not None
        assert speed.upper is not None
        return speed.upper - speed.lower

    widths = [width(blocks) for blocks in (8, 30, 120)]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] > 2 * 2.0 * math.sqrt(1 / 4 + 1)  # more blocks do not buy what only pods can


@pytest.mark.parametrize("comparable", [True, False])
def test_drift_that_both_arms_see_is_not_taken_for_a_difference(arms: Any, comparable: bool) -> None:
    evidence = arms(seed=11, canary=4).after(40)
    verdict = judge(evidence, comparable, policy(5))
    assert verdict.regression is None
    assert verdict.proven
