import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.telemetry.counters import COUNTERS, NUMBERS, Observation, Tally, bound_within, difference
from specfleet.telemetry.page import Sample, parse

PAGES = Path(__file__).parent / "pages"
IDLE = parse((PAGES / "draft-k4-idle.txt").read_bytes())
BUSY = replace(parse((PAGES / "draft-k4-greedy20.txt").read_bytes()), process_start=IDLE.process_start)
EPOCH = ("uid-1", 0)

counts = st.integers(0, 10**9).map(float)
tallies = st.builds(
    lambda values, positions, speculating: Tally(*values, per_position=tuple(positions), speculating=speculating),
    st.lists(counts, min_size=len(NUMBERS), max_size=len(NUMBERS)),
    st.lists(counts, max_size=5),
    st.booleans(),
)


def observed(sample: Sample, epoch: tuple[str, int] = EPOCH) -> Observation:
    return Observation(epoch, sample)


def test_the_difference_of_two_real_pages_is_what_the_requests_between_them_did() -> None:
    tally = difference(observed(IDLE), observed(BUSY), 30.0)
    assert tally is not None
    assert (tally.drafts, tally.accepted, tally.per_position) == (1134, 852, (438, 184, 124, 106))
    assert (tally.http_requests, tally.http_errors) == (20, 0)  # absent on the idle page: made by the first request
    assert (tally.seconds, tally.speculating) == (30, True)


@pytest.mark.parametrize("epoch", [("uid-2", 0), ("uid-1", 1)])
def test_another_pod_or_a_restarted_container_is_another_epoch(epoch: tuple[str, int]) -> None:
    assert difference(observed(IDLE), observed(BUSY, epoch)) is None


def test_a_process_that_started_anew_is_another_epoch() -> None:
    assert difference(observed(IDLE), observed(replace(BUSY, process_start=1.0))) is None


@pytest.mark.parametrize("name", COUNTERS)
def test_a_counter_that_fell_is_another_epoch(name: str) -> None:
    before = replace(BUSY, **{name: 100.0})
    assert difference(observed(before), observed(replace(BUSY, **{name: 99.0}))) is None


def test_a_position_that_fell_or_vanished_is_another_epoch() -> None:
    fell = replace(BUSY, accepted_per_position=(438, 184, 124, 105))
    gone = replace(BUSY, accepted_per_position=(438, 184, 124))
    assert difference(observed(BUSY), observed(fell)) is None
    assert difference(observed(BUSY), observed(gone)) is None


@pytest.mark.parametrize("name", [name for name in COUNTERS if not name.startswith("http")])
def test_a_family_that_appears_within_an_epoch_is_no_measurement(name: str) -> None:
    assert difference(observed(replace(BUSY, **{name: None})), observed(BUSY)) is None


def test_off_is_not_zero() -> None:
    off = observed(parse((PAGES / "spec-off.txt").read_bytes()))
    tally = difference(off, off)
    assert tally is not None
    assert not tally.speculating
    idle = difference(observed(IDLE), observed(IDLE))
    assert idle is not None
    assert idle.speculating


def timed(*within: tuple[float, float]) -> Sample:
    """A page whose first tokens came `within` so many seconds, so many each: (bound, number)."""
    return replace(BUSY, first_token_times=within)


@pytest.mark.parametrize(
    ("limit", "bound", "late"),
    [(2.0, 1.0, 0), (1.0, 1.0, 0), (0.02, 0.02, 3), (0.039, 0.02, 3), (0.015, 0.01, 20), (0.04, 0.04, 0)],
)
def test_a_limit_between_two_buckets_is_read_as_the_lower_one(limit: float, bound: float, late: float) -> None:
    """Of 20 first tokens on the real page 17 came within 0.02 s and all within 0.04 s."""
    assert bound_within(limit, [IDLE, BUSY]) == bound
    tally = difference(observed(IDLE), observed(BUSY), 30, bound)
    assert tally is not None
    assert (tally.timed, tally.late) == (20, late)


def test_without_a_limit_or_a_bucket_below_it_nothing_is_timed() -> None:
    assert bound_within(None, [IDLE, BUSY]) is None
    assert bound_within(0.0005, [IDLE, BUSY]) is None
    assert bound_within(2.0, []) is None
    tally = difference(observed(IDLE), observed(BUSY), 30)
    assert tally is not None
    assert (tally.timed, tally.late, tally.first_tokens) == (0, 0, 20)


def test_pods_with_other_buckets_are_read_at_a_bound_that_all_have() -> None:
    coarse, fine = timed((1.0, 3), (math.inf, 4)), timed((0.5, 1), (1.0, 2), (1.5, 3), (math.inf, 4))
    assert bound_within(2.0, [fine]) == 1.5
    assert bound_within(2.0, [fine, coarse]) == 1.0
    assert bound_within(2.0, [fine, timed()]) is None


def test_a_histogram_that_comes_or_goes_times_nothing_and_one_that_falls_is_another_epoch() -> None:
    before, after = timed((1.0, 3), (math.inf, 4)), timed((1.0, 5), (math.inf, 9))
    tally = difference(observed(before), observed(after), 0, 1.0)
    assert tally is not None
    assert (tally.timed, tally.late) == (5, 3)
    for gone in ((timed(), after), (before, timed())):
        tally = difference(observed(gone[0]), observed(gone[1]), 0, 1.0)
        assert tally is not None
        assert (tally.timed, tally.late) == (0, 0)
    assert difference(observed(after), observed(before), 0, 1.0) is None
    assert difference(observed(before), observed(timed((1.0, 4), (math.inf, 4))), 0, 1.0) is None


def test_in_multiprocess_mode_a_restart_is_still_seen_by_counters_that_fall() -> None:
    """Several API servers together have no process start."""
    before, after = replace(BUSY, process_start=None), replace(IDLE, process_start=None, http_requests=None)
    assert difference(observed(before), observed(replace(before, drafts=1200)), 1) is not None
    assert difference(observed(before), observed(after), 1) is None


@given(tallies, tallies, tallies)
def test_tallies_add_up_in_any_order_and_zero_adds_nothing(a: Tally, b: Tally, c: Tally) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Tally.zero() == a


@given(tallies, tallies)
def test_the_sum_speculates_if_a_part_does_and_keeps_every_position(a: Tally, b: Tally) -> None:
    total = a + b
    assert total.speculating == (a.speculating or b.speculating)
    assert sum(total.per_position) == sum(a.per_position) + sum(b.per_position)
    assert total.drafts == a.drafts + b.drafts
