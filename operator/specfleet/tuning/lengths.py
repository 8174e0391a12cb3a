"""What shorter proposal lengths would give, from the counters of the present one. Pure.

Longer ones cannot be read off: their positions were never drafted, and longer drafts restart at harder tokens.
"""

from itertools import accumulate

from specfleet.telemetry.counters import Tally

MIN_DRAFTS = 200


def tokens_per_step_by_length(tally: Tally) -> tuple[float, ...]:
    """Tokens emitted per verifying step at lengths 1, 2, ... up to the present one; empty below 200 drafts.

    E(k) = 1 + S_1 + ... + S_k, where S_i is the share of drafts of which at least i tokens were accepted
    (vllm:spec_decode_num_accepted_tokens_per_pos ÷ vllm:spec_decode_num_drafts). A little low for shorter lengths: a
    shorter draft restarts at easier tokens.
    """
    if tally.drafts < MIN_DRAFTS:
        return ()
    survival = (accepted / tally.drafts for accepted in tally.per_position)
    return tuple(accumulate(survival, initial=1.0))[1:]
