"""The shipped judge over recorded evidence, look by look."""

import math
from dataclasses import replace

import pytest

from specfleet.cli.replay import replay
from specfleet.judgement.judge import Policy, judge
from specfleet.judgement.verdict import Metric, Outcome
from specfleet.telemetry.counters import Tally
from specfleet.telemetry.evidence import EMPTY, Block, Evidence

POLICY = Policy(speed_percent=5, acceptance_points=5, error_points=1, max_blocks=120)
# A pod's minute: 8 requests at once, 30 tokens a second each.
BUSY = Tally(
    drafts=6000, draft_tokens=18_000, accepted=10_800, decode_outputs=6000, decode_seconds=560, first_tokens=60,
    iterations=750, finished=60, http_requests=60, seconds=60, speculating=True,
)  # fmt: skip


def evidence(canary: Tally, blocks: int) -> Evidence:
    """Minutes with some noise in the canary's speed, beside three pods of stable that differ a little."""
    total = EMPTY
    for number in range(blocks):
        noisy = replace(canary, decode_seconds=canary.decode_seconds * (1 + 0.04 * math.sin(2.3 * number)))
        stable = {f"s{index}": replace(BUSY, decode_seconds=560 * (1 + 0.01 * index)) for index in range(3)}
        total = total.add(Block(stable, {"c0": noisy}))
    return total


def test_the_last_look_replayed_is_the_judges_own_and_earlier_ones_come_near():
    for blocks in (3, 8, 25):
        found = evidence(BUSY, blocks)
        assert replay(found, False, POLICY)[-1].verdict == judge(found, False, POLICY)
    looks = replay(evidence(BUSY, 25), False, POLICY)
    for look in looks:
        then = judge(evidence(BUSY, look.blocks), False, POLICY)
        for now_said, said in zip(look.verdict.metrics, then.metrics, strict=True):
            assert now_said.outcome is said.outcome
            assert now_said.lower == pytest.approx(said.lower, abs=0.05)


def test_earlier_looks_under_a_schedule_compare_the_first_position_as_the_judge_did():
    policy, then, total = replace(POLICY, scheduled=True), {}, EMPTY
    for number in range(1, 25):
        wave = 20 * math.sin(2.3 * number)
        stable = {f"s{each}": replace(BUSY, per_position=(4200.0 + wave + 60 * each,)) for each in range(3)}
        total = total.add(Block(stable, {"c0": replace(BUSY, per_position=(4200.0,))}))
        then[number] = judge(total, True, policy).of(Metric.ACCEPTANCE)
    for look in replay(total, True, policy):
        assert look.verdict.of(Metric.ACCEPTANCE).lower == pytest.approx(then[look.blocks].lower, abs=0.05)


@pytest.mark.parametrize(
    ("blocks", "first", "looks"), [(0, 0, 0), (1, 1, 1), (8, 8, 1), (9, 8, 2), (17, 8, 10), (400, 8, 10)]
)
def test_at_most_ten_looks_from_the_first_that_can_speak_to_the_last(blocks, first, looks):
    counts = [look.blocks for look in replay(evidence(BUSY, blocks), False, POLICY)]
    assert len(counts) == len(set(counts)) == looks
    assert counts == sorted(counts)
    assert counts[:1] == [min(8, blocks)][:looks]
    assert counts[-1:] == [blocks][:looks]


def test_an_earlier_look_had_fewer_requests():
    few = replace(BUSY, finished=3, http_requests=3)
    looks = replay(evidence(few, 12), False, POLICY)
    errors = {look.blocks: look.verdict.metrics[-1] for look in looks}
    assert errors[8].message == "errors: 24 of 30 requests on canary"
    assert errors[12].outcome is not Outcome.INSUFFICIENT_DATA
