"""What shorter proposal lengths would give."""

import pytest

from specfleet.telemetry.counters import Tally
from specfleet.tuning.lengths import tokens_per_step_by_length


def test_each_length_adds_the_share_of_drafts_that_survive_to_its_last_position() -> None:
    tally = Tally(drafts=1000, draft_tokens=3000, accepted=1400, per_position=(800.0, 400.0, 200.0), speculating=True)
    assert tokens_per_step_by_length(tally) == pytest.approx((1.8, 2.2, 2.4))


def test_the_present_length_gives_what_the_counters_say_in_all() -> None:
    tally = Tally(drafts=640, draft_tokens=2560, accepted=911, per_position=(430.0, 260.0, 141.0, 80.0))
    assert tokens_per_step_by_length(tally)[-1] == pytest.approx(1 + 911 / 640)


@pytest.mark.parametrize("tally", [Tally.zero(), Tally(drafts=199, per_position=(150.0,))])
def test_few_drafts_say_nothing(tally: Tally) -> None:
    assert tokens_per_step_by_length(tally) == ()
