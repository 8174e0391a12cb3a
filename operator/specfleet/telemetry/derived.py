"""Quantities that follow from a tally's counters, each with its formula, unit and source. Pure.

None always means unknown: the counters that a quantity needs did not move.
"""

from specfleet.telemetry.counters import Tally

AGREEMENT = 0.05  # of the generated tokens, by which counters may contradict each other


def acceptance_rate(tally: Tally) -> float | None:
    """accepted ÷ draft tokens, 0..1.

    Source: vllm:spec_decode_num_accepted_tokens ÷ vllm:spec_decode_num_draft_tokens. Never the mean of per-request or
    per-pod rates, which would weigh short ones like long ones. It falls by design as the proposal length grows, since
    later positions are harder.
    """
    return _ratio(tally.accepted, tally.draft_tokens)


def position_acceptance(tally: Tally, position: int) -> float | None:
    """Share of drafts, 0..1, of which at least the tokens at 0..position were accepted.

    Source: vllm:spec_decode_num_accepted_tokens_per_pos ÷ vllm:spec_decode_num_drafts. Exact at position 0; at later
    ones only if every draft was that long.
    """
    if position >= len(tally.per_position):
        return None
    return _ratio(tally.per_position[position], tally.drafts)


def tokens_per_step(tally: Tally) -> float | None:
    """Acceptance length E = 1 + accepted ÷ drafts, tokens that a request emits per step that verifies a draft.

    Source: vllm:spec_decode_num_accepted_tokens, vllm:spec_decode_num_drafts; the 1 is the token that the target model
    adds itself. None where nothing was drafted, with speculation off too.
    """
    extra = _ratio(tally.accepted, tally.drafts)
    return None if extra is None else 1.0 + extra


def speed(tally: Tally) -> float | None:
    """(decode outputs + accepted) ÷ decode seconds: tokens per second of one decoding request.

    Source: vllm:inter_token_latency_seconds and vllm:spec_decode_num_accepted_tokens. Under speculation an output of a
    request carries 1 + (its accepted) tokens but is observed once, so the histogram alone counts steps, not tokens.
    Holds with, without and with partial speculation; equals 1 ÷ the mean of vllm:request_time_per_output_token_seconds
    without waiting for requests to end.
    """
    return _ratio(tally.decode_outputs + tally.accepted, tally.decode_seconds)


def step_time(tally: Tally) -> float | None:
    """decode seconds ÷ decode outputs: seconds between two outputs of a decoding request.

    Source: vllm:inter_token_latency_seconds sum ÷ count. vLLM observes it once per output of a request, not once per
    token: under speculation it is the step's time, and does not fall when acceptance rises. Prefill of other requests
    and preemption are inside.
    """
    return _ratio(tally.decode_seconds, tally.decode_outputs)


def mean_batch(tally: Tally) -> float | None:
    """decode outputs ÷ iterations: decoding requests per engine step.

    Source: vllm:inter_token_latency_seconds_count ÷ vllm:iteration_tokens_total_count. A mean over the whole interval,
    where the gauge vllm:num_requests_running is one instant of it. Steps that only prefill count as steps.
    """
    return _ratio(tally.decode_outputs, tally.iterations)


def time_per_output_token(tally: Tally) -> float | None:
    """Decode seconds ÷ (decode outputs + accepted): seconds that a token of a request takes after its first.

    The inverse of `speed`; what vllm:request_time_per_output_token_seconds has as its mean once requests have ended.
    """
    return _ratio(tally.decode_seconds, tally.decode_outputs + tally.accepted)


def request_rate(tally: Tally) -> float | None:
    """HTTP requests ÷ pod-seconds: requests per second that one pod answers.

    Source: http_requests_total of the handlers /v1/* over the time between the scrapes.
    """
    return _ratio(tally.http_requests, tally.seconds)


def coverage(tally: Tally) -> float | None:
    """drafts ÷ decode outputs: the share of decode steps that verified a draft.

    Source: vllm:spec_decode_num_drafts ÷ vllm:inter_token_latency_seconds_count. Below 1: steps without a proposal (a
    schedule's 0, no n-gram match). Above 1: phantom drafts, which vLLM pads in for a request that is admitted with one
    token to compute (vllm#45237); they are counted as drafted and never accepted. None with speculation off.
    """
    return _ratio(tally.drafts, tally.decode_outputs) if tally.speculating else None


def draft_length(tally: Tally) -> float | None:
    """draft tokens ÷ drafts: tokens that a draft really had.

    Source: vllm:spec_decode_num_draft_tokens ÷ vllm:spec_decode_num_drafts. Below the proposal length where a schedule,
    a grammar or a lookup proposes less.
    """
    return _ratio(tally.draft_tokens, tally.drafts)


def prompt_share(tally: Tally) -> float | None:
    """prompt tokens ÷ generation tokens. Source: the two counters of these names. Prefill lengthens the steps of those
    that decode beside it, so speeds compare only where this is alike."""
    return _ratio(tally.prompt_tokens, tally.generation_tokens) if tally.prompt_tokens else None


def late_share(tally: Tally) -> float | None:
    """late ÷ timed first tokens, 0..1.

    Source: the buckets of vllm:time_to_first_token_seconds: (all − those within the bound) ÷ all.
    """
    return _ratio(tally.late, tally.timed)


def consistency_error(tally: Tally) -> float | None:
    """(decode outputs + first tokens + accepted) ÷ generation tokens − 1: 0 where the counters agree with each other.

    Source: every generated token is a request's first one, or a decode output's own, or an accepted one. Tokens that
    were accepted past a stop make it a little positive; beyond ±0.05 the interval deserves no trust.
    """
    share = _ratio(tally.decode_outputs + tally.first_tokens + tally.accepted, tally.generation_tokens)
    return None if share is None else share - 1.0


def consistent(tally: Tally) -> bool | None:
    """Whether the counters agree with each other, as `consistency_error` says.

    A request's last draft may reach past its stop: each finished one may add as many accepted tokens as a draft has,
    which is much where answers are short.
    """
    error, longest = consistency_error(tally), draft_length(tally) or 0.0
    if error is None:
        return None
    return -AGREEMENT <= error <= AGREEMENT + tally.finished * longest / tally.generation_tokens


def error_share(tally: Tally) -> float | None:
    """HTTP errors ÷ HTTP requests, 0..1.

    Source: http_requests_total of the handlers /v1/*, status 5xx ÷ all. 4xx are the client's doing.
    """
    return _ratio(tally.http_errors, tally.http_requests)


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator > 0 else None
