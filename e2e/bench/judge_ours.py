"""What the shipped judge says of a made-up rollout: its counters as evidence, block by block, one look at each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bench.judge_world import BLOCKS, PROPOSAL, REQUEST_TOKENS, TICK_SECONDS, TICKS_PER_BLOCK, World
from specfleet.judgement.judge import Policy, judge, resolvable_margin
from specfleet.judgement.verdict import Metric, Outcome, Verdict
from specfleet.telemetry.counters import Tally
from specfleet.telemetry.evidence import EMPTY, Block, Evidence

PUBLISHED_EVERY = 8  # blocks: how often the margin that the pods resolve is measured anew
STRICT = Policy(speed_percent=0, acceptance_points=0, error_points=0, max_blocks=BLOCKS)
MARGIN = Policy(speed_percent=5, acceptance_points=3, error_points=1, max_blocks=BLOCKS)


@dataclass(frozen=True, slots=True)
class Calls:
    """The first block at which a policy was told of a regression and of a proof; None: never."""

    regression: int | None = None
    proven: int | None = None

    @property
    def ended(self) -> bool:
        return self.regression is not None or self.proven is not None


@dataclass(frozen=True, slots=True)
class Watched:
    """What one rollout would have been told without a margin, at MARGIN, and at the margin that its pods resolve."""

    strict: Calls = Calls()
    margin: Calls = Calls()
    published: Calls = Calls()
    points: float = math.inf  # the last published margin of acceptance


def looks(world: World, policy: Policy) -> Iterator[tuple[Evidence, Verdict]]:
    """The evidence and the verdict after every block."""
    evidence = EMPTY
    for block in blocks(world):
        evidence = evidence.add(block)
        yield evidence, judge(evidence, True, policy)


def watch(world: World, to_the_end: bool = True) -> Watched:
    """What each policy calls when. They differ in margins only, on which the intervals do not depend: one look serves
    all, and its interval is held against their margins as the judge does it.

    Without `to_the_end` it stops when nothing can change any more who wins the rollout.
    """
    found, resolved = Watched(), published(world, EMPTY)
    for number, (evidence, verdict) in enumerate(looks(world, STRICT), 1):
        if number % PUBLISHED_EVERY == 0:
            resolved = published(world, evidence)
        found = Watched(
            strict=_noted(found.strict, number, verdict),
            margin=_noted(found.margin, number, against(verdict, MARGIN)),
            published=_noted(found.published, number, against(verdict, resolved)),
            points=resolved.acceptance_points,
        )
        if not to_the_end and found.strict.ended and found.margin.ended and found.published.ended:
            break
    return found


def published(world: World, evidence: Evidence) -> Policy:
    """The smallest margins that the arms' pods resolve as far as `evidence` knows them; of errors the usual point."""
    points = {
        metric: resolvable_margin(world.cell.canary, world.cell.stable, metric, evidence, MARGIN) for metric in Metric
    }
    return replace(
        MARGIN,
        speed_percent=points[Metric.SPEED],
        acceptance_points=points[Metric.ACCEPTANCE],
        error_points=max(MARGIN.error_points, points[Metric.ERRORS]),
    )


def _noted(calls: Calls, block: int, verdict: Verdict) -> Calls:
    if calls.regression is None and verdict.regression is not None:
        calls = replace(calls, regression=block)
    if calls.proven is None and verdict.proven:
        calls = replace(calls, proven=block)
    return calls


def against(verdict: Verdict, policy: Policy) -> Verdict:
    """That verdict as it would be with the policy's margins."""
    metrics = []
    for each in verdict.metrics:
        margin = policy.margin(each.metric)
        if each.lower is None or each.upper is None:
            metrics.append(replace(each, margin=margin))
            continue
        outcome = Outcome.NON_INFERIOR if each.lower > -margin else Outcome.INCONCLUSIVE
        metrics.append(replace(each, margin=margin, outcome=Outcome.REGRESSION if each.upper < -margin else outcome))
    return Verdict(tuple(metrics))


def blocks(world: World) -> Iterator[Block]:
    """As the operator's collector fills them: a pod counts in a tick if it answered at both ends of it, and a tick
    counts if a pod of either arm does."""
    first = np.ones((len(world.answered), 1), dtype=bool)
    counts = world.answered & np.concatenate((first, world.answered[:, :-1]), axis=1)
    stable = world.cell.stable
    paired = np.flatnonzero(counts[:stable].any(axis=0) & counts[stable:].any(axis=0))
    ticks = paired[: len(paired) // TICKS_PER_BLOCK * TICKS_PER_BLOCK].reshape(-1, TICKS_PER_BLOCK)
    sums = [
        np.where(counts, each, 0)[:, ticks].sum(axis=2).T.tolist()
        for each in (world.requests, world.accepted, world.seconds, world.errors, counts)
    ]
    for block in zip(*sums, strict=True):
        tallies = [_tally(world.batch(pod), *values) for pod, values in enumerate(zip(*block, strict=True))]
        named = {f"pod-{pod}": tally for pod, tally in enumerate(tallies) if tally.seconds}
        yield Block(
            stable={name: tally for name, tally in named.items() if int(name[4:]) < stable},
            canary={name: tally for name, tally in named.items() if int(name[4:]) >= stable},
        )


def _tally(batch: float, requests: int, accepted: int, seconds: float, errors: int, ticks: int) -> Tally:
    drafted = requests * REQUEST_TOKENS
    outputs = drafted / PROPOSAL
    return Tally(
        drafts=outputs,
        draft_tokens=float(drafted),
        accepted=float(accepted),
        decode_outputs=outputs,
        decode_seconds=seconds,
        first_tokens=float(requests),
        iterations=outputs / batch,
        finished=float(requests),
        http_requests=float(requests),
        http_errors=float(errors),
        seconds=float(ticks * TICK_SECONDS),
        speculating=True,
    )
