"""The bar tells the truth about margin and zero, however coarse it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.cli.interval import WIDTH, ZERO, bar

number = st.floats(-1000, 1000).map(lambda value: round(value, 1))


def drawn(lower, estimate, upper, margin):
    return bar(lower, estimate, upper, margin, "green").plain


@pytest.mark.parametrize(
    ("numbers", "line"),
    [
        ((18.0, 24.1, 30.2, 15.0), "········┆······│········━━━●━━━"),
        ((-6.1, 0.3, 6.7, 5.0), "······━┆━━━━━━━●━━━━━━━━━━·····"),
        ((-28.0, -21.4, -14.8, 5.0), "━━━━●━━━····┆··│···············"),
        ((None, None, None, 5.0), "·······┆·······│···············"),
        ((None, None, None, None), "···············│···············"),
    ],
)
def test_bars_are_as_recorded(numbers, line):
    assert drawn(*numbers) == line


@given(st.tuples(number, number, number).map(sorted), st.floats(0.1, 50).map(lambda value: round(value, 1)))
def test_an_interval_is_drawn_on_the_margins_true_side(interval, margin):
    lower, estimate, upper = interval
    line = drawn(lower, estimate, upper, margin)
    mark, columns = line.find("┆"), [index for index, cell in enumerate(line) if cell in "━●"]
    assert len(line) == WIDTH
    if mark < 0:
        assert estimate == -margin
        return
    assert mark < ZERO
    if lower > -margin:
        assert columns
        assert min(columns) > mark
    if upper < -margin:
        assert max(columns) < mark


@given(number, st.floats(0.1, 50))
def test_without_an_interval_nothing_is_drawn_of_it(lower, margin):
    assert "━" not in drawn(lower, None, None, margin)
