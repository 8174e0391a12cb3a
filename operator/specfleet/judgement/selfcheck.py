"""Compares halves of stable's own pods as if one were a canary: how often that is a false alarm, how pods differ.
Mutable, no I/O.

Every alarm is a false one, since both halves run the same revision. Splits of one hour are not independent of each
other, so the rate means something over many hours and many fleets.
"""

import hashlib
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, islice
from math import comb

from specfleet.judgement.judge import Policy, judge
from specfleet.judgement.spread import pod_spread
from specfleet.judgement.verdict import Metric, Outcome
from specfleet.telemetry.counters import Tally
from specfleet.telemetry.evidence import Arm, Evidence, PairedBlock, rounded

BLOCK_SECONDS = 120.0  # two ticks of a fleet at rest
LOOKS = (10, 20, 30)  # blocks; as in a rollout an alarm at any look counts. 30 are an hour
LEAST_PODS = 4
PATIENCE = 4  # ticks until other pods are the pods: a restarted one is silent for two
MOST_SPLITS = 35  # all halves of eight pods
# Without a margin: with one an alarm would need a difference that halves of one revision never have.
POLICY = Policy(speed_percent=0, acceptance_points=0, error_points=0, max_blocks=LOOKS[-1])


@dataclass(frozen=True, slots=True)
class Checked:
    """What one split showed: the metrics in which it was a false alarm."""

    alarms: frozenset[Metric]


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """What all splits so far showed; `spread` is between pods over the last full hour, in each metric's unit."""

    comparisons: int
    false_alarms: int
    spread: Mapping[Metric, float]


@dataclass(frozen=True, slots=True)
class _Hour:
    """A full window. Each of `blocks` has the tallies of `pods` in their order, `sums` theirs up to each of LOOKS."""

    pods: tuple[str, ...]
    blocks: tuple[tuple[Tally, ...], ...]
    sums: tuple[Mapping[str, Tally], ...]


@dataclass(slots=True)
class SelfChecker:
    """Feeds on what stable's pods did between ticks at rest; splits one hour while it gathers the next.

    `seed`, the revision's uid, and the number of the hour choose the splits. About 16 kB for four pods.
    """

    seed: str
    _pods: tuple[str, ...] = ()
    _seconds: float = 0.0
    _open: dict[str, Tally] = field(default_factory=dict)
    _blocks: "list[array[float]]" = field(default_factory=list)
    _hour: _Hour | None = None
    _splits: Iterator[tuple[str, ...]] = field(default_factory=lambda: iter(()))
    _odd: int = 0  # ticks in a row with other pods
    _hours: int = 0
    _comparisons: int = 0
    _false_alarms: int = 0
    _spread: Mapping[Metric, float] = field(default_factory=dict)

    def add(self, deltas: Mapping[str, Tally], seconds: float) -> None:
        """Take in one tick. A pod that misses some costs the open block; one that comes or goes, the hour."""
        pods = tuple(sorted(deltas))
        if pods != self._pods:
            self._odd, self._seconds, self._open = self._odd + 1, 0.0, {}
            if self._blocks and self._odd < PATIENCE:
                return
            self._pods, self._blocks = pods, []
        self._odd = 0
        if len(pods) < LEAST_PODS:
            return
        self._seconds += seconds
        for pod, delta in deltas.items():
            self._open[pod] = self._open.get(pod, Tally.zero()) + delta
        if self._seconds + seconds / 2 < BLOCK_SECONDS:
            return
        self._blocks.append(array("d", [value for pod in pods for value in _row(rounded(self._open[pod]))]))
        self._seconds, self._open = 0.0, {}
        if len(self._blocks) == LOOKS[-1]:
            self._turn()

    def split(self) -> Checked | None:
        """Judge the next split of the last full hour; None when there is none left, or it could not be judged.

        One a tick: the cost never comes all at once.
        """
        hour = self._hour
        chosen = next(self._splits, None)
        if hour is None or chosen is None:
            self._hour = None
            return None
        compared, alarms = False, set()
        for evidence in _looks(hour, frozenset(chosen)):
            for item in judge(evidence, True, POLICY).metrics:
                compared |= item.estimate is not None
                if item.outcome is Outcome.REGRESSION:
                    alarms.add(item.metric)
        if not compared:
            return None
        self._comparisons += 1
        self._false_alarms += bool(alarms)
        return Checked(frozenset(alarms))

    @property
    def seen(self) -> SelfCheck | None:
        """What is known so far; None before the first hour is full."""
        return SelfCheck(self._comparisons, self._false_alarms, self._spread) if self._spread else None

    def _turn(self) -> None:
        """The hour is full: from the next tick on it is split, while another is gathered."""
        width = len(self._blocks[0]) // len(self._pods)
        blocks = tuple(
            tuple(_tally(row[start : start + width]) for start in range(0, len(row), width)) for row in self._blocks
        )
        sums = tuple(
            {pod: Tally.total([block[index] for block in blocks[:look]]) for index, pod in enumerate(self._pods)}
            for look in LOOKS
        )
        self._hour, self._blocks = _Hour(self._pods, blocks, sums), []
        self._splits = islice(halves(self._pods, f"{self.seed}/{self._hours}"), MOST_SPLITS)
        self._hours += 1
        spread = {metric: pod_spread(metric, sums[-1]) for metric in Metric}
        self._spread = {metric: value for metric, value in spread.items() if value is not None}


def halves(pods: tuple[str, ...], seed: str) -> Iterator[tuple[str, ...]]:
    """The half that plays the canary, over and over: each split of up to eight pods once, else random ones without end.

    Of an odd number it is the smaller half. `seed` decides which of two equal halves plays it.
    """
    size = len(pods) // 2
    if comb(len(pods), size) <= 2 * MOST_SPLITS:
        for chosen in combinations(pods, size):
            if len(pods) % 2:
                yield chosen
            elif pods[0] in chosen:
                rest = tuple(pod for pod in pods if pod not in chosen)
                yield chosen if _hash(seed, *chosen) % 2 else rest
        return
    number = 0
    while True:
        yield tuple(sorted(pods, key=lambda pod: _hash(seed, str(number), pod))[:size])
        number += 1


def _hash(*parts: str) -> int:
    return int.from_bytes(hashlib.sha256("/".join(parts).encode()).digest()[:8])


def _looks(hour: _Hour, canary: frozenset[str]) -> Iterator[Evidence]:
    mine = [index for index, pod in enumerate(hour.pods) if pod in canary]
    rest = [index for index, pod in enumerate(hour.pods) if pod not in canary]
    blocks = tuple(PairedBlock(stable=_pool(block, rest), canary=_pool(block, mine)) for block in hour.blocks)
    for look, sums in zip(LOOKS, hour.sums, strict=True):
        arms = {
            Arm.STABLE: {hour.pods[index]: sums[hour.pods[index]] for index in rest},
            Arm.CANARY: {hour.pods[index]: sums[hour.pods[index]] for index in mine},
        }
        yield Evidence(blocks[:look], arms)


def _pool(block: tuple[Tally, ...], chosen: list[int]) -> Tally:
    return Tally.total([block[index] for index in chosen])


def _row(tally: Tally) -> tuple[float, ...]:
    """The numbers, and of positions the first: -1 where the pod does not speculate."""
    first = tally.per_position[0] if tally.per_position else 0.0
    return (*tally.numbers(), first if tally.speculating else -1.0)


def _tally(row: "array[float]") -> Tally:
    *numbers, first = row
    return Tally(*numbers, per_position=(first,) if first >= 0 else (), speculating=first >= 0)
