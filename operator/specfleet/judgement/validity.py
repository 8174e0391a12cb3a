"""Whether two arms' counters can be compared at all: the traps of vLLM's metrics, each with its reason. Pure."""

import math
from collections.abc import Sequence
from operator import attrgetter

from specfleet.judgement.verdict import Outcome
from specfleet.telemetry.counters import Tally
from specfleet.telemetry.derived import (
    consistency_error,
    consistent,
    coverage,
    draft_length,
    mean_batch,
    prompt_share,
    request_rate,
)
from specfleet.telemetry.evidence import Arm, PairedBlock

MAX_LOAD_RATIO = math.sqrt(2)  # a half-bin of log2 batch size: step time hardly moves within one
MAX_BLOCK_LOAD_RATIO = 2.0  # of a single block, whose few requests differ by chance; all together obey the other
_LOAD = ("decode_outputs", "iterations", "http_requests", "seconds")
_BATCH = attrgetter("decode_outputs", "iterations")
MAX_COVERAGE_RATIO = 1.1  # phantom drafts in a tenth of the steps take 4.5 points off an acceptance of 50 %
MAX_PROMPT_RATIO = 2.0  # requests are of other kinds beyond it

Obstacle = tuple[Outcome, str] | None


def contradicting(canary: Tally, stable: Tally) -> Obstacle:
    """An arm whose counters contradict each other says nothing of tokens: one of them counts something else."""
    for arm, tally in (("canary", canary), ("stable", stable)):
        if consistent(tally) is False:
            off = f"{100 * (consistency_error(tally) or 0.0):+.0f} %"
            return Outcome.INCONSISTENT, f"outputs, first and accepted tokens on {arm} are {off} off the generated ones"
    return None


def unlike_drafts(canary: Tally, stable: Tally) -> Obstacle:
    """Acceptance is that of the steps that drafted: it compares only where both arms drafted in as many, and as much.

    Above 1 coverage means phantom drafts, which are counted and never accepted (vllm#45237); below 1 a schedule's 0 or
    lookups without a match.
    """
    covered = coverage(canary), coverage(stable)
    if covered[0] and covered[1] and not _alike(*covered, MAX_COVERAGE_RATIO):
        phantom = ", phantom ones among them" if max(covered[0], covered[1]) > MAX_COVERAGE_RATIO else ""
        shares = f"{100 * covered[0]:.0f} % of the steps on canary, {100 * covered[1]:.0f} % on stable"
        return Outcome.INSUFFICIENT_OVERLAP, f"drafts in {shares}{phantom}"
    lengths = draft_length(canary), draft_length(stable)
    if lengths[0] and lengths[1] and not _alike(*lengths, MAX_LOAD_RATIO):
        return Outcome.INSUFFICIENT_OVERLAP, f"drafts of {lengths[0]:.1f} tokens on canary, {lengths[1]:.1f} on stable"
    return None


def unlike_loads(canary: Tally, stable: Tally) -> Obstacle:
    """A canary pod that is given less to do runs smaller batches, and would look faster than it is.

    Either likeness will do. Where clients wait for answers the batch is what they set. Where requests arrive by
    themselves their rate is, and the batch follows from the speed (Little's law): a canary that is half as fast again
    runs smaller batches *because* it is faster, and that must not keep it from being judged.
    """
    batches, rates = (mean_batch(canary), mean_batch(stable)), (request_rate(canary), request_rate(stable))
    if _alike(*batches, MAX_LOAD_RATIO) or _alike(*rates, MAX_LOAD_RATIO):
        return None
    if batches[0] is None or batches[1] is None:
        return Outcome.INSUFFICIENT_OVERLAP, "mean batch unknown"
    return Outcome.INSUFFICIENT_OVERLAP, f"mean batch {batches[0]:.1f} on canary, {batches[1]:.1f} on stable"


def under_like_load(blocks: Sequence[PairedBlock]) -> Sequence[PairedBlock]:
    """The blocks in which the arms worked under about the same load, by the batch or by the rate of requests.

    A canary with 5 % of the requests runs small batches, and looks fast, for as long as that step lasts: those blocks
    say nothing of its speed. By columns and without a division, since a thousand deployments are judged each block.
    """
    most = MAX_BLOCK_LOAD_RATIO
    canaries, stables = (map(_BATCH, map(attrgetter(arm), blocks)) for arm in ("canary", "stable"))
    return [
        block
        for block, (out, steps), (out_s, steps_s) in zip(blocks, canaries, stables, strict=True)
        if 0 < (mine := out * steps_s) <= most * out_s * steps <= most * most * mine
        or _alike(request_rate(block.canary), request_rate(block.stable), most)
    ]


def loads(blocks: Sequence[PairedBlock], arm: Arm) -> Tally:
    """What an arm did in these blocks, as far as it tells the load."""
    tallies = list(map(attrgetter(arm), blocks))
    outputs, steps, requests, seconds = (math.fsum(map(attrgetter(name), tallies)) for name in _LOAD)
    return Tally(decode_outputs=outputs, iterations=steps, http_requests=requests, seconds=seconds)


def unlike_requests(canary: Tally, stable: Tally) -> Obstacle:
    """Prefill lengthens the steps of those that decode beside it: an arm with longer prompts looks slower."""
    shares = prompt_share(canary), prompt_share(stable)
    if not (shares[0] and shares[1]) or _alike(*shares, MAX_PROMPT_RATIO):
        return None
    each = f"{shares[0]:.1f} prompt tokens to a generated one on canary, {shares[1]:.1f} on stable"
    return Outcome.INSUFFICIENT_OVERLAP, each


def _alike(canary: float | None, stable: float | None, most: float) -> bool:
    if not canary or not stable:
        return False
    return 1 / most <= canary / stable <= most
