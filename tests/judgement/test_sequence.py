import math
import random

import pytest

from specfleet.judgement.sequence import half_width, no_event_bound, t_quantile, tuned_rho2

# probability, degrees of freedom, value: from printed tables of Student's t.
T_TABLE = [
    (0.95, 1, 6.314),
    (0.95, 2, 2.920),
    (0.95, 3, 2.353),
    (0.95, 4, 2.132),
    (0.95, 7, 1.895),
    (0.95, 10, 1.812),
    (0.95, 30, 1.697),
    (0.95, 120, 1.658),
    (0.975, 1, 12.706),
    (0.975, 5, 2.571),
    (0.975, 20, 2.086),
    (0.99, 4, 3.747),
    (0.995, 8, 3.355),
    (0.999, 3, 10.215),
    (0.90, 15, 1.341),
    (0.95, 1e6, 1.645),
]


@pytest.mark.parametrize(("probability", "freedom", "expected"), T_TABLE)
def test_students_t_agrees_with_the_tables(probability: float, freedom: float, expected: float) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(expected, abs=6e-4)


def test_half_a_chance_is_the_middle() -> None:
    assert t_quantile(0.5, 4) == pytest.approx(0, abs=1e-8)


def test_the_half_width_is_smallest_near_the_block_it_is_tuned_to() -> None:
    at_30 = half_width(1, 30, tuned_rho2(0.05, 30), 0.05)
    assert at_30 < half_width(1, 30, tuned_rho2(0.05, 3), 0.05)
    assert at_30 < half_width(1, 30, tuned_rho2(0.05, 300), 0.05)
    assert at_30 > 1.645 / math.sqrt(30)  # looking often has a price


def test_the_sequence_covers_at_every_look_together() -> None:
    rng = random.Random(1)
    rho2 = tuned_rho2(0.05, 30)
    widths = [half_width(1, n, rho2, 0.05) for n in range(1, 201)]
    escaped = 0
    for _ in range(1000):
        total = 0.0
        for n, width in enumerate(widths, 1):
            total += rng.gauss(0, 1)
            if total / n > width:
                escaped += 1
                break
    assert 10 <= escaped <= 65  # at most 5 % + two standard errors, and not idly wide


def test_a_bound_without_an_event_is_the_rule_of_three() -> None:
    assert no_event_bound(0.05, 300) == pytest.approx(3 / 300, rel=0.01)
    assert no_event_bound(0.05, 0) == 1
    assert no_event_bound(0.05, 1) == 1
