from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.telemetry.counters import COUNTERS, Observation, Tally, difference
from specfleet.telemetry.page import Sample, parse

PAGES = Path(__file__).parent / "pages"
IDLE = parse((PAGES / "draft-k4-idle.txt").read_bytes())
BUSY = replace(parse((PAGES / "draft-k4-greedy20.txt").read_bytes()), process_start=IDLE.process_start)
EPOCH = ("uid-1", 0)

counts = st.integers(0, 10**9).map(float)
tallies = st.builds(
    lambda values, positions, speculating: Tally(*values, per_position=tuple(positions), speculating=speculating),
    st.lists(counts, min_size=14, max_size=14),
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
