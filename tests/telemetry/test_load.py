"""The peak of a load, and whether fewer pods could hold it."""

import pytest

from specfleet.telemetry.load import WINDOW, Load, Peaks, overload
from specfleet.telemetry.page import Sample


def at(running, waiting=0.0, kv=0.1):
    return Sample(running=running, waiting=waiting, kv_usage=kv)


def test_a_peak_is_the_most_of_each_sum_within_the_window():
    peaks = Peaks()
    peaks.add(0.0, [at(4, kv=0.2), at(6, kv=0.4)])
    peaks.add(60.0, [at(1, waiting=2), at(2)])
    assert peaks.load == Load(running=10, waiting=2, kv=pytest.approx(0.6))
    peaks.add(WINDOW + 30.0, [at(1), at(1)])
    assert peaks.load == Load(running=3, waiting=2, kv=pytest.approx(0.2))


def test_a_tick_in_which_a_pod_does_not_tell_is_no_measurement():
    peaks = Peaks()
    peaks.add(0.0, [at(4), Sample(running=1.0)])
    peaks.add(15.0, [])
    assert peaks.load is None


def test_a_peak_goes_in_time_while_a_pod_is_silent():
    peaks = Peaks()
    peaks.add(0.0, [at(4)])
    peaks.add(WINDOW + 1.0, [])
    assert peaks.load is None


@pytest.mark.parametrize(
    ("load", "pods", "most", "why"),
    [
        (None, 3, None, "not known"),
        (Load(1, 0, 0.1), 0, None, "no pod"),
        (Load(1, 1, 0.1), 3, None, "waited"),
        (Load(1, 0, 2.6), 3, None, "87% full"),
        (Load(100, 0, 0.1), 3, 40, "33 of 40"),
    ],
)
def test_what_stands_in_the_way_is_said(load, pods, most, why):
    assert why in overload(load, pods, most)


def test_a_load_that_fits_is_no_overload():
    assert overload(Load(90, 0, 2.5), 3, 40) == ""
