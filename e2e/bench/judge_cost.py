"""What judging costs: CPU time for a thousand deployments, bytes of their evidence."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, replace

from bench.judge_ours import MARGIN, blocks
from bench.judge_world import BLOCKS, Cell, make
from specfleet.judgement.judge import judge
from specfleet.telemetry.counters import Tally
from specfleet.telemetry.evidence import EMPTY, Block, Evidence

DEPLOYMENTS = 1000
DISTINCT = 20
REPEATS = 5
PODS = 10
LIMIT = 1.0  # seconds to the first token


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one core to judge DEPLOYMENTS once: the median of REPEATS and the worst; bytes of the largest."""

    median: float
    worst: float
    evidence: int


def measured() -> Cost:
    """Of deployments with PODS pods that have gathered BLOCKS blocks, with a limit on the time to the first token."""
    fleet = [_gathered(seed) for seed in range(DISTINCT)]
    seconds = [_judged(fleet) for _ in range(REPEATS)]
    return Cost(statistics.median(seconds), max(seconds), max(len(each.to_json().encode()) for each in fleet))


def _gathered(seed: int) -> Evidence:
    evidence = EMPTY
    for block in blocks(make(Cell("", stable=PODS - 2, canary=2), 0, seed)):
        evidence = evidence.add(_timed(block))
    assert evidence.seen == BLOCKS
    return evidence


def _timed(block: Block) -> Block:
    """The block with first tokens, of which a twentieth is late, and the first position of the drafts."""
    arms = [{pod: _with_times(tally) for pod, tally in tallies.items()} for tallies in (block.stable, block.canary)]
    return Block(arms[0], arms[1], bound=LIMIT)


def _with_times(tally: Tally) -> Tally:
    late, first = tally.first_tokens // 20, float(round(tally.accepted / 2))
    return replace(tally, timed=tally.first_tokens, late=late, per_position=(first,))


def _judged(fleet: list[Evidence]) -> float:
    policy = replace(MARGIN, ttft_limit=LIMIT)
    start = time.process_time()
    for number in range(DEPLOYMENTS):
        judge(fleet[number % len(fleet)], True, policy)
    return time.process_time() - start
