"""The rules of the judges that the benchmark compares with, each on an example small enough to check by hand."""

import math

import numpy as np
import pytest

from bench import judge_peers as peers
from bench.judge_cells import TRIALS
from bench.judge_ours import MARGIN, STRICT, against, blocks, looks, watch
from bench.judge_peers import NEVER, Series
from bench.judge_plot import svg
from bench.judge_world import ALIKE, REQUEST_TOKENS, STEP_SECONDS, TICK_SECONDS, Cell, make
from specfleet.judgement.judge import judge
from specfleet.telemetry.collector import Collector
from specfleet.telemetry.counters import COUNTERS, Observation, Tally
from specfleet.telemetry.evidence import Arm
from specfleet.telemetry.page import Sample

GOOD, POOR = 0.0, -4.0  # points


def gaps(*points: float) -> np.ndarray:
    return np.array([points])


def test_argo_fails_with_more_than_failure_limit_failures_and_passes_at_count() -> None:
    bad = peers.argo(gaps(GOOD, POOR, GOOD, GOOD, GOOD), 3, interval=1, count=5, failure_limit=0)
    assert (bad.aborted[0], bad.promoted[0]) == (2, NEVER)
    forgiven = peers.argo(gaps(GOOD, POOR, GOOD, GOOD, GOOD), 3, interval=1, count=5, failure_limit=1)
    assert (forgiven.aborted[0], forgiven.promoted[0]) == (NEVER, 5)


def test_argo_does_not_pass_when_the_last_measurement_is_one_failure_too_many() -> None:
    ends = peers.argo(gaps(GOOD, GOOD, POOR), 3, interval=1, count=3, failure_limit=0)
    assert (ends.aborted[0], ends.promoted[0]) == (3, NEVER)


def test_argo_measures_the_last_interval() -> None:
    ends = peers.argo(gaps(*[GOOD] * 5, *[POOR] * 5, *[GOOD] * 5), 3, interval=5, count=3, failure_limit=0)
    assert ends.aborted[0] == 10


def test_a_rate_of_nothing_fails_a_success_condition() -> None:
    assert peers.argo(gaps(math.nan), 3, interval=1, count=1, failure_limit=0).aborted[0] == 1


def test_flagger_counts_failures_over_the_whole_analysis_and_steps_only_on_good_checks() -> None:
    interleaved = peers.flagger(gaps(POOR, GOOD, POOR, GOOD, GOOD), 3, threshold=2, steps=3)
    assert (interleaved.aborted[0], interleaved.promoted[0]) == (3, NEVER)
    slow = peers.flagger(gaps(POOR, GOOD, GOOD, GOOD), 3, threshold=2, steps=3)
    assert (slow.aborted[0], slow.promoted[0]) == (NEVER, 4)


def test_flagger_decides_nothing_before_its_time() -> None:
    ends = peers.flagger(gaps(GOOD, GOOD), 3, threshold=2, steps=3)
    assert (ends.aborted[0], ends.promoted[0]) == (NEVER, NEVER)


def around(level: float, points: int = 30) -> np.ndarray:
    return np.array([[level + 0.01 * math.sin(1.7 * n) for n in range(points)]])


def test_kayenta_calls_low_what_lies_below_as_a_whole_and_passes_what_overlaps() -> None:
    assert peers.kayenta_low(around(0.60), around(0.65), 1.0)[0]
    assert not peers.kayenta_low(around(0.649), around(0.65), 1.0)[0]
    assert not peers.kayenta_low(around(0.70), around(0.65), 1.0)[0]


def test_kayenta_lets_pass_what_is_less_than_the_allowed_decrease() -> None:
    assert peers.kayenta_low(around(0.60), around(0.65), 0.93)[0]
    assert not peers.kayenta_low(around(0.60), around(0.65), 0.90)[0]


def test_kayenta_estimates_the_shift_by_hodges_and_lehmann() -> None:
    upper, estimate, ratio = peers._shift(np.array([[1.0, 2.0, 9.0]]), np.array([[1.0, 1.0, 1.0]]), 0.98)
    assert (estimate[0], ratio[0]) == (1.0, 4.0)  # differences 0 0 0 1 1 1 8 8 8
    assert upper[0] == 8.0


def test_kayenta_promotes_at_its_last_judgement() -> None:
    alike = around(0.65, 60)
    ends = peers.kayenta(np.vstack([alike, alike - 0.05]), np.vstack([alike, alike]), 1.0, (30, 60))
    assert ends.promoted.tolist() == [60, NEVER]
    assert ends.aborted.tolist() == [NEVER, 30]


def tokens(canary: int, stable: int, ticks: int = 40, drafted: int = 1000) -> Series:
    return Series(
        (np.full((1, ticks), canary), np.full((1, ticks), drafted)),
        (np.full((1, ticks), stable), np.full((1, ticks), drafted)),
    )


def test_the_z_test_aborts_at_its_quantile() -> None:
    """At the first look 4000 tokens an arm: one standard error is 1.07 points, 1.64 of them are 1.75."""
    assert peers.two_proportions(tokens(632, 650), 0.05, 0.0).aborted[0] == 1
    assert peers.two_proportions(tokens(633, 650), 0.05, 0.0).aborted[0] == 1.25


def test_the_z_test_promotes_what_is_surely_not_worse_by_the_margin() -> None:
    assert peers.two_proportions(tokens(650, 650), 0.05, 0.03).promoted[0] == 1
    assert peers.two_proportions(tokens(650, 650), 0.05, 0.0).promoted[0] == NEVER


def test_the_mixture_needs_more_than_one_look_of_a_z_test() -> None:
    series = tokens(632, 650, ticks=400)
    assert 1 < peers.mixture_sprt(series, 0.05, 0.0).aborted[0] < 30


def test_tuning_takes_the_mildest_change_that_is_quiet_enough() -> None:
    runs = np.array([[-5.0]] * 10 + [[-1.0]] * 90)
    rule = lambda allowed: peers.argo(runs, allowed, interval=1, count=1, failure_limit=0)  # noqa: E731
    assert peers.tuned(rule, np.array([0.5, 3.0, 4.5, 5.5, 7.0])) == 5.5
    assert peers.tuned(rule, np.array([0.5, 3.0])) is None


def test_a_scraper_that_missed_an_answer_gets_it_all_with_the_next() -> None:
    counts = np.array([[1, 2, 4, 8]])
    assert peers._seen(counts, np.array([[True, False, False, True]])).tolist() == [[1, 0, 0, 14]]


def test_requests_have_the_rate_and_the_clustering_that_are_said() -> None:
    world = make(Cell("", stable=40, canary=1, drift=0), 0, 1)
    stable = slice(0, 40)
    rate = world.accepted[stable].sum() / world.drafted[stable].sum()
    assert rate == pytest.approx(0.65, abs=0.002)
    excess = world.accepted[stable] - rate * world.drafted[stable]
    variance = (excess**2).sum() / world.drafted[stable].sum()
    assert variance == pytest.approx(rate * (1 - rate) * (1 + (REQUEST_TOKENS - 1) * ALIKE), rel=0.03)


def test_smaller_batches_make_a_canary_look_faster() -> None:
    world = make(Cell("", canary_load=0.4), 0, 1)
    step = world.seconds.sum(axis=1) / world.outputs.sum(axis=1)
    assert step[:4].mean() > 1.1 * step[4:].mean() > 1.1 * STEP_SECONDS


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_blocks_are_those_of_the_operators_collector(missing: float) -> None:
    """With pods so silent that some ticks lack an arm, block by block, from scraped counters."""
    world = make(Cell("", stable=12, canary=1, missing=missing), 0, 2, ticks=200)
    world.answered[:, 0] = True
    collector, found = Collector(block_seconds=60, warmup_seconds=0), []
    totals = [Tally.zero()] * 13
    for tick in range(-1, 200):
        if tick >= 0:
            totals = [total + _one(world, pod, tick) for pod, total in enumerate(totals)]
        answered = [pod for pod in range(13) if tick < 0 or world.answered[pod, tick]]
        arms = {
            arm: {f"pod-{pod}": _observed(totals[pod]) for pod in answered if (pod < 12) == (arm is Arm.STABLE)}
            for arm in Arm
        }
        block = collector.tick(TICK_SECONDS * float(tick), arms)
        found += [block] if block else []
    ours = list(blocks(world))
    assert len(found) == len(ours) > 0
    for theirs, mine in zip(found, ours, strict=True):
        for one, other in ((theirs.stable, mine.stable), (theirs.canary, mine.canary)):
            assert one.keys() == other.keys()
            for pod in one:
                assert one[pod].accepted == other[pod].accepted
                assert one[pod].decode_seconds == pytest.approx(other[pod].decode_seconds)
                assert one[pod].seconds == other[pod].seconds


def _one(world, pod: int, tick: int) -> Tally:
    return Tally(
        accepted=float(world.accepted[pod, tick]),
        draft_tokens=float(world.drafted[pod, tick]),
        decode_seconds=float(world.seconds[pod, tick]),
    )


def _observed(total: Tally) -> Observation:
    return Observation(("pod", 0), Sample(**{name: getattr(total, name) for name in COUNTERS}))


def test_one_look_serves_all_margins() -> None:
    world = make(Cell("", spread=0.08), 3, 5, ticks=60)
    for evidence, verdict in looks(world, STRICT):
        wanted = judge(evidence, True, MARGIN)
        found = against(verdict, MARGIN)
        assert [(m.outcome, m.lower, m.upper, m.margin) for m in found.metrics] == [
            (m.outcome, m.lower, m.upper, m.margin) for m in wanted.metrics
        ]


def test_watching_notes_the_first_call_of_each_policy() -> None:
    found = watch(make(Cell(""), 8, 6, ticks=120))
    assert found.strict.regression is not None
    assert found.margin.regression is not None
    assert found.strict.regression <= found.margin.regression
    assert found.margin.proven is None


def test_every_cell_has_a_name_of_its_own() -> None:
    assert len({trial.cell.name for trial in TRIALS}) == len(TRIALS)


def test_the_picture_has_a_dot_for_each_share() -> None:
    picture = svg({"a <judge>": ([1.0, 2.0], [3.0, 4.0]), "specfleet": ([0.0], [0.0])})
    assert picture.count("<circle") == 6
    assert "a &lt;judge&gt;" in picture
