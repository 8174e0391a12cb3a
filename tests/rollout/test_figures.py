"""The measured figures in status: rewritten when the fleet changes, not when counting is noisy."""

from random import Random
from types import SimpleNamespace as Of

import pytest

from specfleet.api.status import figure
from specfleet.rollout.figures import measured, per_token
from specfleet.telemetry.counters import Tally


def counted(random, drafts, chance, length=4):
    accepted = sum(random.random() < chance for _ in range(drafts * length))
    steps = {"decode_outputs": drafts, "decode_seconds": 0.02 * drafts}
    return Tally(drafts=drafts, draft_tokens=drafts * length, accepted=accepted, **steps)


def printed(tally, old):
    seen = Of(canary=Of(recent=Tally.zero()), stable=Of(recent=tally))
    return measured(Of(seen=seen, roles=Of(canary=None)), old)


@pytest.mark.parametrize("drafts", [200, 1500])
def test_counting_noise_is_written_about_never(drafts):
    random, old, writes = Random(1), {}, 0
    for _ in range(600):
        new = printed(counted(random, drafts, 0.45), old)
        writes, old = writes + (new != old), new
    assert writes <= 3


def test_a_change_of_the_workload_is_written():
    random = Random(1)
    old = printed(counted(random, 1500, 0.45), {})
    assert printed(counted(random, 1500, 0.65), old)["acceptance"] != old["acceptance"]


@pytest.mark.parametrize("steps", [1e-300, 1e300])
def test_a_page_of_nonsense_prints_no_longer_than_a_field_has_room_for(steps):
    seen = Of(revision="v1", recent=Tally(drafts=1.0, draft_tokens=4.0, decode_outputs=steps, decode_seconds=1e15))
    fleet = printed(seen.recent, {})
    arm = per_token(Of(spec=Of(slo=None)), Of(name="v1"), seen, {})
    assert all(len(text or "") <= 12 for text in (*fleet.values(), arm))


@pytest.mark.parametrize(
    ("value", "decimals", "text"), [(41.26, 1, "41.3"), (-2.0, 0, "-2"), (3e12, 1, "3.0e+12"), (-4e200, 0, "-4.0e+200")]
)
def test_a_figure_is_short_whatever_was_measured(value, decimals, text):
    assert figure(value, decimals) == text
