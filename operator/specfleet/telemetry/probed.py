"""Takes out of a block what the operator's own probes did, or says that they did too much of it. Pure.

Of what a server counts, requests, finished and timed ones, errors, prompt and generated tokens are known for probes,
since the answers tell: they are subtracted. What cannot be told apart stays in: drafted and accepted tokens, decode
outputs, steps and their time. So a block in which probes made more than 1 % of an arm's generated tokens, or could have
made more than 1 % of its drafts, is dropped whole. Where an arm did nothing but answer probes, all of it was theirs:
the arm was idle, which is no reason to drop a block but something to know.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from specfleet.telemetry.asked import NOTHING, Asked
from specfleet.telemetry.counters import Tally
from specfleet.telemetry.evidence import pool

MAX_SHARE = 0.01


def without_probes(pods: Mapping[str, Tally], asked: Mapping[str, Asked]) -> dict[str, Tally] | None:
    """An arm's tallies of one block without what was asked of its pods; None where the block has to go."""
    if all(item == NOTHING for item in asked.values()):
        return dict(pods)
    total = pool(pods)
    tokens = sum(item.most_tokens for item in asked.values())
    if total.http_requests <= sum(item.requests for item in asked.values()) and total.generation_tokens <= tokens:
        return {pod: _idle(tally) for pod, tally in pods.items()}
    least = min(total.generation_tokens, total.drafts or math.inf)  # each token of a probe is a draft at most
    if tokens > MAX_SHARE * least:
        return None
    return {pod: _less(tally, asked.get(pod, NOTHING)) for pod, tally in pods.items()}


def _idle(tally: Tally) -> Tally:
    none = (0.0,) * len(tally.per_position)
    return Tally(seconds=tally.seconds, per_position=none, speculating=tally.speculating)


def _less(tally: Tally, asked: Asked) -> Tally:
    """A request that was in flight at the block's edge may have been counted in the block before: never below 0. Of a
    probe it is not known whether its first token was late: it is taken to have been in time, which excuses nobody."""
    timed = max(0.0, tally.timed - asked.finished)
    return replace(
        tally,
        http_requests=max(0.0, tally.http_requests - asked.requests),
        http_errors=max(0.0, tally.http_errors - asked.errors),
        finished=max(0.0, tally.finished - asked.finished),
        first_tokens=max(0.0, tally.first_tokens - asked.finished),
        prompt_tokens=max(0.0, tally.prompt_tokens - asked.prompt_tokens),
        generation_tokens=max(0.0, tally.generation_tokens - asked.generation_tokens),
        timed=timed,
        late=min(tally.late, timed),
    )
