"""The shipped judge over recorded evidence, as it stood after some of its blocks. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from specfleet.judgement.judge import Policy, judge
from specfleet.judgement.verdict import Verdict
from specfleet.telemetry.counters import NUMBERS, Tally
from specfleet.telemetry.evidence import BLOCK_FIELDS, Arm, Evidence, PairedBlock, pool

MOST = 10  # looks that are shown


@dataclass(frozen=True, slots=True)
class PastLook:
    """What the judge says after so many blocks."""

    blocks: int
    verdict: Verdict


def replay(evidence: Evidence, comparable: bool, policy: Policy, most: int | None = MOST) -> tuple[PastLook, ...]:
    """At most `most` looks, evenly spaced over those that could say something; None: all of them. The last one is of
    all blocks.

    The last look is the judge's own. Earlier ones are near it: which pod did what is kept as one sum for all blocks, so
    each pod is taken to have had its share of that sum from the start.
    """
    total = len(evidence.blocks)
    if not total:
        return ()
    first = min(policy.min_blocks, total)
    looks = total - first + 1 if most is None else min(most, total - first + 1)
    counts = [total - (total - first) * index // max(1, looks - 1) for index in range(looks)]
    return tuple(PastLook(count, judge(_until(evidence, count), comparable, policy)) for count in reversed(counts))


def _until(evidence: Evidence, count: int) -> Evidence:
    """The evidence as it was after `count` blocks, and as it is after all of them."""
    later = evidence.blocks[count:]
    if not later:
        return evidence
    pods = {arm: _earlier(evidence.pods[arm], later, arm) for arm in Arm}
    return Evidence(evidence.blocks[:count], pods, bound=evidence.bound)


def _earlier(pods: Mapping[str, Tally], later: tuple[PairedBlock, ...], arm: Arm) -> dict[str, Tally]:
    """The sums per pod without what the arm did in the blocks of `later`."""
    whole = pool(pods)
    gone = Tally.total([block.stable if arm is Arm.STABLE else block.canary for block in later])
    time = _share(gone.seconds, whole.seconds)
    shares = {
        name: _share(getattr(gone, name), getattr(whole, name)) if name in BLOCK_FIELDS else time for name in NUMBERS
    }
    return {name: _scaled(tally, shares) for name, tally in pods.items()}


def _share(gone: float, whole: float) -> float:
    return max(0.0, 1 - gone / whole) if whole else 1.0


def _scaled(tally: Tally, shares: Mapping[str, float]) -> Tally:
    numbers = [getattr(tally, name) * share for name, share in shares.items()]
    positions = tuple(accepted * shares["drafts"] for accepted in tally.per_position)
    return Tally(*numbers, per_position=positions, speculating=tally.speculating)
