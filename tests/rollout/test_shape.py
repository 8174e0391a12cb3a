"""Pods for a weight: tables, and what holds for every weight and every bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.rollout.shape import Bounds, Shape, limit, shape_for, whole

REST = Shape(0, 4)


@pytest.mark.parametrize(
    ("weight", "bounds", "now", "expected"),
    [
        (20, Bounds(4, 1, 0), Shape(0, 4), Shape(1, 4)),
        (25, Bounds(4, 1, 0), Shape(1, 4), Shape(1, 3)),
        (50, Bounds(4, 1, 0), Shape(1, 4), Shape(2, 2)),
        (50, Bounds(4, 0, 1), Shape(1, 3), Shape(2, 2)),
        (5, Bounds(4, 0, 1), Shape(0, 4), Shape(1, 3)),
        (5, Bounds(100, 1, 0), Shape(0, 100), Shape(5, 95)),
        (5, Bounds(1, 1, 0), Shape(0, 1), Shape(1, 1)),
        (99, Bounds(1, 1, 0), Shape(1, 1), Shape(1, 1)),  # the most that two pods can
        (90, Bounds(4, 1, 0), Shape(0, 4), Shape(4, 1)),
        (50, Bounds(1, 0, 1), Shape(0, 1), None),
        (10, Bounds(0, 1, 0), Shape(0, 0), None),
    ],
)
def test_a_weight_becomes_the_nearest_split(weight, bounds, now, expected):
    assert shape_for(weight, bounds, now) == expected


bounds = st.builds(Bounds, st.integers(0, 30), st.integers(0, 5), st.integers(0, 5))
shapes = st.builds(Shape, st.integers(0, 35), st.integers(0, 35))


@given(st.integers(1, 99), bounds, shapes)
def test_a_split_keeps_the_bounds_the_weight_and_a_pod_of_stable(weight, limits, now):
    shape = shape_for(weight, limits, now)
    if shape is not None:
        assert limits.fewest <= shape.canary + shape.stable <= limits.most
        assert shape.share * 100 >= weight or shape == Shape(limits.most - 1, 1)
        assert shape.stable >= 1


@given(st.integers(1, 99), bounds, shapes)
def test_no_split_that_makes_the_weight_takes_fewer_moves(weight, limits, now):
    splits = [Shape(c, total - c) for total in range(limits.fewest, limits.most + 1) for c in range(1, total)]
    enough = [split for split in splits if split.share * 100 >= weight]
    shape = shape_for(weight, limits, now)
    assert (shape is None) == (not splits)
    if enough:
        assert shape is not None
        assert _moves(shape, now) == min(_moves(split, now) for split in enough)


def _moves(split, now):
    return abs(split.canary - now.canary) + abs(split.stable - now.stable)


@given(st.integers(1, 99), bounds, shapes)
def test_a_split_is_kept_once_it_is_reached(weight, limits, now):
    shape = shape_for(weight, limits, now)
    if shape is not None:
        assert shape_for(weight, limits, shape) == shape


@given(bounds, shapes)
def test_the_whole_has_every_replica_and_never_more_than_the_surge(limits, now):
    shape = whole(limits, now)
    assert shape.canary == limits.replicas
    assert shape.stable <= min(limits.surge, now.stable)


@pytest.mark.parametrize(
    ("value", "replicas", "up", "expected"),
    [
        (None, 4, True, None),
        (2, 4, True, 2),
        ("25%", 4, True, 1),
        ("10%", 4, True, 1),
        ("10%", 4, False, 0),
        ("100%", 3, False, 3),
        ("0%", 3, True, 0),
    ],
)
def test_a_percentage_rounds_a_surge_up_and_unavailable_down(value, replicas, up, expected):
    assert limit(value, replicas, up=up) == expected
