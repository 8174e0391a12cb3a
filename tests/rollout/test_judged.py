"""What status says of a verdict: how much longer it takes, in words that promise no more than is known."""

import math

import pytest

from specfleet.judgement.verdict import Metric, MetricVerdict, Outcome
from specfleet.rollout.judged import time_to_decision


def verdict(more, outcome=Outcome.INCONCLUSIVE):
    return MetricVerdict(Metric.SPEED, outcome, 0.0, -1.0, 1.0, 5.0, "%", 10, "", more)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (0.4, "about 1m"),
        (1.0, "about 1m"),
        (11.2, "about 12m"),
        (33.0, "about 35m"),
        (110.0, "about 110m"),
        (110.5, "not within maxSeconds"),
        (math.inf, "not by waiting: too few pods"),
        (None, None),
    ],
)
def test_it_is_about_so_long_and_never_beyond_max_seconds(more, said):
    assert time_to_decision(verdict(more), 10, 120, 60) == said


def test_hours_are_whole():
    assert time_to_decision(verdict(150.0), 10, 500, 60) == "about 3h"


@pytest.mark.parametrize("outcome", [item for item in Outcome if item is not Outcome.INCONCLUSIVE])
def test_nothing_is_said_of_what_is_decided_or_held(outcome):
    assert time_to_decision(verdict(3.0, outcome), 10, 120, 60) is None
