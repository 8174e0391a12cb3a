"""Turns two samples of one server into what happened between them, unless its counters started again. Pure."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from operator import attrgetter
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
NUMBERS = (*COUNTERS, "seconds", "timed", "late")  # of a Tally, in the order of its fields
_sum = partial(sum, start=0.0)
_numbers: Callable[["Tally"], tuple[float, ...]] = attrgetter(*NUMBERS)


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
    Of the first tokens, `timed` are those of which is known whether they came within the bound that the user's limit is
    read as, and `late` those that did not; without a limit, or a histogram to read it in, none is.
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
    timed: float = 0.0
    late: float = 0.0
    per_position: tuple[float, ...] = field(default=(), kw_only=True)
    speculating: bool = field(default=False, kw_only=True)

    @classmethod
    def zero(cls) -> Self:
        """The neutral element of `+`."""
        return cls()

    def numbers(self) -> tuple[float, ...]:
        """The NUMBERS in their order."""
        return _numbers(self)

    @classmethod
    def total(cls, tallies: Sequence["Tally"]) -> Self:
        """Their sum, in their order; zero of none."""
        if not tallies:
            return cls.zero()
        return cls(  # by columns, since every block of every deployment is summed
            *map(_sum, zip(*map(_numbers, tallies), strict=True)),
            per_position=tuple(map(_sum, zip_longest(*(each.per_position for each in tallies), fillvalue=0.0))),
            speculating=any(each.speculating for each in tallies),
        )

    def __add__(self, other: "Tally") -> "Tally":
        return Tally.total((self, other))


def difference(
    before: Observation, after: Observation, seconds: float = 0.0, bound: float | None = None
) -> Tally | None:
    """What happened between two observations of one pod, `seconds` apart; None if its counters started again between.

    They did if the pod, its restart count or its process start differ, if any counter fell, or if a family came or
    went. The caller then starts afresh from `after`: a guess at what was lost would look like a measurement. First
    tokens are late beyond `bound` seconds, which must be a bucket's.
    """
    old, new = before.sample, after.sample
    if before.epoch != after.epoch or old.process_start != new.process_start:
        return None
    deltas = [_delta(getattr(old, name), getattr(new, name), lazy=name in _LAZY) for name in COUNTERS]
    positions = _position_deltas(old.accepted_per_position, new.accepted_per_position)
    known = [delta for delta in deltas if delta is not None]
    timed, late = _lateness(dict(old.first_token_times), dict(new.first_token_times), bound)
    if positions is None or len(known) < len(deltas) or min(timed, late) < 0:
        return None
    return Tally(*[*known, seconds, timed, late], per_position=positions, speculating=new.drafts is not None)


def bound_within(limit: float | None, samples: Iterable[Sample]) -> float | None:
    """What a limit in seconds is read as: the last bound of vLLM's buckets that is no later, and that all have.

    So no request that broke the limit is taken for one that kept it, and both arms are read alike. None without a limit
    or such a bound.
    """
    bounds = [{bound for bound, _ in sample.first_token_times} for sample in samples]
    common = set[float].intersection(*bounds) if bounds else set[float]()
    return max((bound for bound in common if limit is not None and 0 < bound <= limit), default=None)


def _lateness(old: Mapping[float, float], new: Mapping[float, float], bound: float | None) -> tuple[float, float]:
    """(timed, late) between two states of the buckets; (0, 0) where nobody knows, negative where they fell."""
    if bound is None or not (bound in old and bound in new):
        return 0.0, 0.0
    timed, in_time = new[math.inf] - old[math.inf], new[bound] - old[bound]
    return (timed, timed - in_time) if in_time >= 0 else (in_time, 0.0)


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
