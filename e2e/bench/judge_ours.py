"""What the shipped judge says of a made-up rollout: its counters as evidence, block by block, one look at each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from bench.judge_world import BLOCKS, REQUEST_TOKENS, TICK_SECONDS, TICKS_PER_BLOCK, World
from specfleet.judgement.judge import Policy, judge
from specfleet.judgement.verdict import Outcome, Verdict
from specfleet.telemetry.counters import Tally
from specfleet.telemetry.evidence import EMPTY, Block


@dataclass(frozen=True, slots=True)
class Calls:
    """The first block at which a policy was told of a regression and of a proof; None: never."""

    regression: int | None = None
    proven: int | None = None


def looks(world: World, policy: Policy) -> Iterator[Verdict]:
    """The verdict after every block."""
    evidence = EMPTY
    for block in blocks(world):
        evidence = evidence.add(block)
        yield judge(evidence, True, policy)


def watch(world: World, policies: Mapping[str, Policy]) -> dict[str, Calls]:
    """What each policy calls when. They differ in margins only, and the intervals do not depend on a margin: one look
    serves all, and is compared with their margins as the judge does."""
    found = {name: Calls() for name in policies}
    for number, verdict in enumerate(looks(world, next(iter(policies.values()))), 1):
        for name, policy in policies.items():
            found[name] = _noted(found[name], number, against(verdict, policy))
    return found


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
            metrics.append(each)
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
    ticks = np.flatnonzero(counts[:stable].any(axis=0) & counts[stable:].any(axis=0))
    ticks = ticks[: len(ticks) // TICKS_PER_BLOCK * TICKS_PER_BLOCK].reshape(-1, TICKS_PER_BLOCK)
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
    outputs = drafted / 4
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
