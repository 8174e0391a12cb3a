"""Halves of stable's own pods against each other: which halves, what they cost, how often they raise a false alarm."""

import random
import time
from dataclasses import replace
from itertools import islice
from math import comb

import pytest

from specfleet.judgement.ratios import RATIOS
from specfleet.judgement.selfcheck import LOOKS, MOST_SPLITS, PATIENCE, SelfChecker, halves
from specfleet.judgement.verdict import Metric
from specfleet.telemetry.counters import Tally

MINUTES = 2 * LOOKS[-1]
BUSY = Tally(
    drafts=6000, draft_tokens=18_000, accepted=10_800, decode_outputs=6000, decode_seconds=560, first_tokens=60,
    iterations=750, finished=60, http_requests=60, seconds=60, per_position=(4560, 3540, 2700), speculating=True,
)  # fmt: skip


def minute(rng, paces, noise=0.02):
    """What each pod did: its own pace, some noise, and drift that all of them see."""
    drift = rng.gauss(0, 0.05)
    return {
        pod: replace(BUSY, decode_seconds=560 * pace * rng.gauss(1 + drift, noise), accepted=rng.gauss(10_800, 60))
        for pod, pace in paces.items()
    }


def after(paces, minutes, seed=1, **how):
    checker, rng = SelfChecker(f"uid-{seed}"), random.Random(seed)
    found = []
    for _ in range(minutes):
        checker.add(minute(rng, paces, **how), 60.0)
        found.append(checker.split())
    return checker, [item for item in found if item]


def alike(pods):
    return {f"p{index}": 1.0 for index in range(pods)}


@pytest.mark.parametrize(("pods", "splits"), [(4, 3), (5, 10), (6, 10), (7, 35), (8, 35)])
def test_up_to_eight_pods_every_split_is_tried_once(pods, splits):
    names = tuple(alike(pods))
    chosen = list(halves(names, "uid"))
    assert len(chosen) == splits
    if pods % 2:
        assert len({frozenset(half) for half in chosen}) == comb(pods, pods // 2)
    else:
        both = {frozenset((frozenset(half), frozenset(names) - frozenset(half))) for half in chosen}
        assert len(both) == splits
    assert {len(half) for half in chosen} == {pods // 2}


def test_of_more_pods_splits_are_drawn_and_the_same_seed_draws_the_same():
    names = tuple(alike(20))
    drawn = list(islice(halves(names, "uid"), MOST_SPLITS))
    assert drawn == list(islice(halves(names, "uid"), MOST_SPLITS))
    assert drawn != list(islice(halves(names, "another"), MOST_SPLITS))
    assert len(set(drawn)) == MOST_SPLITS
    assert {len(half) for half in drawn} == {10}


def test_an_hour_is_split_once_one_split_a_tick_while_the_next_is_gathered():
    checker, found = after(alike(4), MINUTES - 1)
    assert (found, checker.seen) == ([], None)
    checker, found = after(alike(4), MINUTES + 30)
    assert len(found) == checker.seen.comparisons == 3
    checker, found = after(alike(8), 2 * MINUTES - 1)
    assert len(found) == 35
    checker, found = after(alike(20), 2 * MINUTES - 1)
    assert len(found) == MOST_SPLITS


def test_fewer_than_four_pods_are_not_split():
    checker, found = after(alike(3), 2 * MINUTES)
    assert (found, checker.seen) == ([], None)


@pytest.mark.parametrize("pods", [5, 6])
def test_a_pod_that_comes_begins_the_hour_anew(pods):
    checker, rng = SelfChecker("uid"), random.Random(1)
    for number in range(2 * MINUTES - 2 + PATIENCE - 1):
        checker.add(minute(rng, alike(4 if number < MINUTES - 1 else pods)), 60.0)
        assert checker.split() is None
    assert checker.seen is None
    checker.add(minute(rng, alike(pods)), 60.0)
    assert checker.seen is not None


def test_a_pod_that_misses_some_ticks_costs_a_block_and_not_the_hour():
    checker, rng = SelfChecker("uid"), random.Random(1)
    for number in range(MINUTES + 5):
        checker.add(minute(rng, alike(3 if 31 <= number < 34 else 4)), 60.0)
    assert checker.seen is not None
    checker.split()
    assert checker.seen.comparisons == 1


def test_the_spread_between_pods_is_measured_and_what_is_shipped_stays():
    paces = {"p0": 0.97, "p1": 0.99, "p2": 1.01, "p3": 1.03}
    checker, _ = after(paces, MINUTES + 5, noise=0.005)
    assert checker.seen.spread[Metric.SPEED] == pytest.approx(2.6, abs=0.3)  # percent
    assert checker.seen.spread[Metric.ERRORS] == 0
    assert RATIOS[Metric.SPEED].spread == 2.0


def test_pods_that_do_nothing_are_no_comparison():
    checker = SelfChecker("uid")
    for _ in range(MINUTES + 5):
        checker.add(dict.fromkeys(alike(4), Tally(seconds=60)), 60.0)
        assert checker.split() is None
    assert checker.seen is None


def test_false_alarms_are_few_on_pods_that_are_alike():
    comparisons = alarms = 0
    for seed in range(40):  # hours of four pods, all that was ever the same
        seen = after(alike(4), MINUTES + 4, seed)[0].seen
        comparisons, alarms = comparisons + seen.comparisons, alarms + seen.false_alarms
    assert comparisons == 120
    assert alarms <= 6  # 5 %


def test_pods_that_differ_far_beyond_what_is_assumed_raise_alarms_that_are_counted_by_metric():
    paces = {"p0": 1.0, "p1": 1.0, "p2": 1.3, "p3": 1.3}
    found = after(paces, 8 * MINUTES)[1]  # whichever half plays the canary: in some hour it is the slow one
    assert {metric for item in found for metric in item.alarms} == {Metric.SPEED}


def test_it_costs_little():
    rng = random.Random(1)
    minutes = [minute(rng, alike(4)) for _ in range(MINUTES + 4)]
    checker = SelfChecker("uid")
    started = time.process_time()
    for tallies in minutes:
        checker.add(tallies, 60.0)
        checker.split()
    assert time.process_time() - started < 0.1  # about 10 ms per fleet of four pods and hour: 10 s for a thousand
    assert checker.seen.comparisons == 3


def test_a_counter_that_moves_by_nearly_nothing_is_no_denominator():
    checker = SelfChecker("uid")
    for _ in range(2 * MINUTES):
        checker.add({pod: replace(BUSY, draft_tokens=1e-300, decode_seconds=1e-300) for pod in alike(4)}, 60.0)
        checker.split()
    assert checker.seen is not None
    assert set(checker.seen.spread) == {Metric.ERRORS}
