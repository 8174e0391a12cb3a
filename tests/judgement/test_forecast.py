"""How many more blocks a metric takes: what comes if things go on as they do, and nothing where nobody knows."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.judgement.forecast import HORIZON, blocks_until
from specfleet.judgement.judge import Policy, judge
from specfleet.judgement.verdict import Metric, MetricVerdict, Outcome
from specfleet.telemetry.counters import Tally
from specfleet.telemetry.evidence import EMPTY, Block, Evidence

POLICY = Policy(speed_percent=7, acceptance_points=5, error_points=1, max_blocks=120)
BUSY = Tally(
    drafts=6000, draft_tokens=18_000, accepted=10_800, decode_outputs=6000, decode_seconds=560, first_tokens=60,
    iterations=750, finished=60, http_requests=60, seconds=60, speculating=True,
)  # fmt: skip
IDLE = Tally(seconds=60, speculating=True)


def evidence(blocks: int, pace: float = 1.0, noise: float = 0.1, every: int = 1) -> Evidence:
    """Four pods beside four; the canary works in one block of `every`."""
    total = EMPTY
    for number in range(blocks):
        busy = replace(BUSY, decode_seconds=560 * pace * (1 + noise * math.sin(2.3 * number)))
        canary = busy if number % every == 0 else IDLE
        total = total.add(Block({f"s{i}": BUSY for i in range(4)}, {f"c{i}": canary for i in range(4)}))
    return total


def speed(found: Evidence, policy: Policy = POLICY) -> MetricVerdict:
    return judge(found, True, policy).of(Metric.SPEED)


@pytest.mark.parametrize(("pace", "margin", "outcome"), [(1.0, 6, Outcome.NON_INFERIOR), (1.16, 7, Outcome.REGRESSION)])
def test_what_is_foretold_comes_about_when_things_go_on(pace: float, margin: float, outcome: Outcome) -> None:
    policy = replace(POLICY, speed_percent=margin)
    now = speed(evidence(12, pace), policy)
    assert now.outcome is Outcome.INCONCLUSIVE
    assert now.more is not None
    assert now.more > 3
    decided = next(blocks for blocks in range(12, 400) if speed(evidence(blocks, pace), policy).outcome is outcome)
    assert decided - 12 == pytest.approx(now.more, rel=0.35, abs=2)


def test_what_is_decided_takes_no_more() -> None:
    assert speed(evidence(60, noise=0.01)).more == 0


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert speed(evidence(3)).more is None
    assert speed(EMPTY).more is None
    assert speed(evidence(20, every=100)).more is None


def test_what_pods_may_differ_by_is_not_waited_away() -> None:
    found = speed(evidence(12), replace(POLICY, speed_percent=1))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.more == math.inf


def test_blocks_in_which_the_canary_is_idle_take_their_time_too() -> None:
    busy, seldom = speed(evidence(12)), speed(evidence(36, every=3))
    assert (busy.blocks, seldom.blocks) == (12, 12)
    assert busy.more is not None
    assert seldom.more is not None
    assert seldom.more > 2 * busy.more


widths = st.floats(0.01, 100)


def reach(floor: float, width: float) -> Any:
    return lambda alpha, blocks: floor + width * math.sqrt(-math.log(alpha) / blocks)


@given(st.floats(-20, 20), st.floats(0, 10), st.floats(0, 5), widths, st.integers(8, 500))
def test_it_is_the_first_block_at_which_the_interval_clears_the_margin(
    estimate: float, margin: float, floor: float, width: float, now: int
) -> None:
    ends = reach(floor, width)
    more = blocks_until(estimate, margin, ends, (0.05, 0.02), now)
    alpha = 0.05 if estimate + margin > 0 else 0.02

    def clears(blocks: int) -> bool:
        return abs(estimate + margin) > ends(alpha, blocks)

    if math.isinf(more):
        assert not clears(HORIZON)
    else:
        assert clears(now + int(more))
        assert more == 0 or not clears(now + int(more) - 1)
