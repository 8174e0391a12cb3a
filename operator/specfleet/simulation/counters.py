"""Holds what a vLLM server counts: counters, gauges and histograms, under the names of its metrics page."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

_TOKEN_TIME_EDGES = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_TIME_EDGES = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0),
    *(40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_BY_LENGTH: tuple[float, ...] = ()  # stands for `length_edges`, which depends on the server's context
# Upper edges of vLLM 0.32's buckets, in the order of its page.
EDGES: dict[str, tuple[float, ...]] = {
    "request_prompt_tokens": _BY_LENGTH,
    "request_generation_tokens": _BY_LENGTH,
    "iteration_tokens_total": (1.0, *(float(2**power) for power in range(3, 15))),
    "request_max_num_generation_tokens": _BY_LENGTH,
    "request_params_n": (1.0, 2.0, 5.0, 10.0, 20.0),
    "request_params_max_tokens": _BY_LENGTH,
    "time_to_first_token_seconds": (
        *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
        *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
    ),
    "inter_token_latency_seconds": _TOKEN_TIME_EDGES,
    "request_time_per_output_token_seconds": _TOKEN_TIME_EDGES,
    "e2e_request_latency_seconds": _REQUEST_TIME_EDGES,
    "request_queue_time_seconds": _REQUEST_TIME_EDGES,
    "request_inference_time_seconds": _REQUEST_TIME_EDGES,
    "request_prefill_time_seconds": _REQUEST_TIME_EDGES,
    "request_decode_time_seconds": _REQUEST_TIME_EDGES,
    "request_num_preemptions": (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0),
    "request_prefill_kv_computed_tokens": _BY_LENGTH,
}


def length_edges(max_model_len: int) -> tuple[float, ...]:
    """Upper edges for numbers of tokens: 1, 2, 5, 10, 20, 50 and so on, up to the longest context."""
    edges = (digit * 10.0**power for power in range(12) for digit in (1, 2, 5))
    return tuple(edge for edge in edges if edge <= max_model_len)


FINISHED_REASONS = ("stop", "length", "abort", "error", "repetition")


@dataclass(slots=True)
class Histogram:
    """A Prometheus histogram: observations per bucket (the last one is +Inf), their number and their sum."""

    edges: tuple[float, ...]
    counts: list[int] = field(init=False)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.edges) + 1)

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)

    def observe(self, value: float) -> None:
        """Count `value` in the first bucket whose edge is at least it."""
        self.counts[bisect_left(self.edges, value)] += 1
        self.sum += value


@dataclass(slots=True)
class Gauges:
    """What the last finished step left: vLLM reports these with a step's outputs, so they freeze with the engine."""

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0


@dataclass(slots=True)
class Counters:
    """Everything that a server with `positions` draft positions counts since it started."""

    positions: int
    max_model_len: int
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_per_position: list[int] = field(init=False)
    prompt_tokens: int = 0
    generation_tokens: int = 0
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FINISHED_REASONS, 0))
    histograms: dict[str, Histogram] = field(init=False)
    gauges: Gauges = field(default_factory=Gauges)

    def __post_init__(self) -> None:
        self.accepted_per_position = [0] * self.positions
        lengths = length_edges(self.max_model_len)
        self.histograms = {name: Histogram(edges or lengths) for name, edges in EDGES.items()}

    def observe(self, histogram: str, value: float) -> None:
        """Add one observation to the histogram of that name."""
        self.histograms[histogram].observe(value)

    def draft(self, proposed: int, accepted: int) -> None:
        """Count one draft: a request's step in which `proposed` > 0 tokens were drafted and `accepted` of them kept."""
        self.drafts += 1
        self.draft_tokens += proposed
        self.accepted_tokens += accepted
        for position in range(accepted):
            self.accepted_per_position[position] += 1
