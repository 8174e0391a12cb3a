"""Turns two samples of one server into what happened between them, unless its counters started again. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import zip_longest
from operator import add, attrgetter
from typing import Self

from specfleet.telemetry.asked import NOTHING, Asked
from specfleet.telemetry.page import Sample

# Fields that `Sample` and `Tally` share. What each counts is said at Sample.
COUNTERS = (
    "drafts",
    "draft_tokens",
    "accepted",
    "generation_tokens",
    "prompt_tokens",
    "decode_outputs",
    "decode_seconds",
    "first_tokens",
    "iterations",
    "finished",
    "failed",
    "http_requests",
    "http_errors",
)
# The HTTP server makes a series with the first request of its handler and status: absent means 0 there, and only there.
_LAZY = frozenset(("http_requests", "http_errors"))
_numbers: Callable[["Tally"], tuple[float, ...]] = attrgetter(*COUNTERS, "seconds")


@dataclass(frozen=True, slots=True)
class Observation:
    """A sample, the life of the container that it was taken from: (pod uid, container restart count), and what of it
    the operator has asked itself."""

    epoch: tuple[str, int]
    sample: Sample
    asked: Asked = NOTHING


@dataclass(frozen=True, slots=True)
class Tally:
    """What happened in some interval on some pods; tallies add up over time and over pods.

    `speculating` is False where no pod had vLLM's speculation families: then `drafts` is 0 because there is nothing to
    count, not because nothing was drafted. `seconds` are pod-seconds; `per_position` is Sample.accepted_per_position.
    """

    drafts: float = 0.0
    draft_tokens: float = 0.0
    accepted: float = 0.0
    generation_tokens: float = 0.0
    prompt_tokens: float = 0.0
    decode_outputs: float = 0.0
    decode_seconds: float = 0.0
    first_tokens: float = 0.0
    iterations: float = 0.0
    finished: float = 0.0
    failed: float = 0.0
    http_requests: float = 0.0
    http_errors: float = 0.0
    seconds: float = 0.0
    per_position: tuple[float, ...] = field(default=(), kw_only=True)
    speculating: bool = field(default=False, kw_only=True)

    @classmethod
    def zero(cls) -> Self:
        """The neutral element of `+`."""
        return cls()

    def numbers(self) -> tuple[float, ...]:
        """The COUNTERS in their order, then `seconds`."""
        return _numbers(self)

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            *map(add, _numbers(self), _numbers(other)),
            per_position=tuple(
                mine + theirs for mine, theirs in zip_longest(self.per_position, other.per_position, fillvalue=0.0)
            ),
            speculating=self.speculating or other.speculating,
        )


def difference(before: Observation, after: Observation, seconds: float = 0.0) -> Tally | None:
    """What happened between two observations of one pod, `seconds` apart; None if its counters started again between.

    They did if the pod, its restart count or its process start differ, if any counter fell, or if a family came or
    went. The caller then starts afresh from `after`: a guess at what was lost would look like a measurement.
    """
    old, new = before.sample, after.sample
    if before.epoch != after.epoch or old.process_start != new.process_start:
        return None
    deltas = [_delta(getattr(old, name), getattr(new, name), lazy=name in _LAZY) for name in COUNTERS]
    positions = _position_deltas(old.accepted_per_position, new.accepted_per_position)
    known = [delta for delta in deltas if delta is not None]
    if positions is None or len(known) < len(deltas):
        return None
    return Tally(*[*known, seconds], per_position=positions, speculating=new.drafts is not None)


def _delta(before: float | None, after: float | None, lazy: bool) -> float | None:
    if after is None:
        return 0.0 if before is None else None
    if before is None:
        return after if lazy else None
    return after - before if after >= before else None


def _position_deltas(before: tuple[float, ...], after: tuple[float, ...]) -> tuple[float, ...] | None:
    if len(before) != len(after) or any(new < old for old, new in zip(before, after, strict=True)):
        return None
    return tuple(new - old for old, new in zip(before, after, strict=True))
