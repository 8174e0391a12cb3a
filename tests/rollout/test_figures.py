"""The measured figures in status: rewritten when the fleet changes, not when counting is noisy."""

from random import Random
from types import SimpleNamespace as Of

import pytest

from specfleet.rollout.figures import measured
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
