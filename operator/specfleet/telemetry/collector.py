"""Decides which scrapes count, for the blocks that are judged and for the windows of the guards. Mutable, no I/O."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from specfleet.telemetry.asked import NOTHING, Asked
from specfleet.telemetry.counters import Observation, Tally, bound_within, difference
from specfleet.telemetry.derived import position_acceptance
from specfleet.telemetry.evidence import Arm, Block
from specfleet.telemetry.probed import without_probes

__all__ = ["RECENT_DRAFTS", "Arm", "Collector"]

RECENT_DRAFTS = 200  # a share of 10 % is then known to about ± 2 points, one standard error
WINDOW_TICKS = 240  # how far back the guards look at most: an hour at 15 s
USUAL_INTERVALS = 10  # the usual time between ticks is the longest of so many: one may look sooner now and then
MIN_GAP = 10.0  # seconds
MAX_WARMUP = 60.0  # seconds after a pod's first answer in which compilers and caches still warm up
FEW_DRAFTS = 50  # in a scrape: of fewer the acceptance falls by chance
STEEP = 0.8  # of the acceptance before; noise of 200 drafts is about a tenth of it


@dataclass(slots=True)
class _Track:
    """One pod of one arm: where its counters stood, and what it did in the last ticks."""

    since: float  # first observation of this epoch
    seen: float  # last tick that it answered
    observation: Observation
    delta: Tally | None = None  # between the last two ticks
    counts: bool = False  # the delta lies wholly after warm-up
    asked: Asked = NOTHING  # by the operator, between the last two ticks
    stalled_since: float | None = None  # the first scrape since which requests run and the engine has made no step
    window: deque[tuple[int, Tally]] = field(default_factory=lambda: deque(maxlen=WINDOW_TICKS))  # (tick, delta)


@dataclass(slots=True)
class _OpenBlock:
    seconds: float = 0.0
    bound: float | None = None
    pods: dict[Arm, dict[str, Tally]] = field(default_factory=lambda: {arm: {} for arm in Arm})
    asked: dict[Arm, dict[str, Asked]] = field(default_factory=lambda: {arm: {} for arm in Arm})

    def add(self, arms: Mapping[Arm, Mapping[str, _Track]], seconds: float, bound: float | None) -> None:
        self.seconds += seconds
        self.bound = bound or self.bound
        for arm, tracks in arms.items():
            for pod, track in tracks.items():
                self.pods[arm][pod] = self.pods[arm].get(pod, Tally.zero()) + (track.delta or Tally.zero())
                self.asked[arm][pod] = self.asked[arm].get(pod, NOTHING) + track.asked

    def continues(self, arms: Mapping[Arm, Mapping[str, _Track]], bound: float | None) -> bool:
        """False if an arm shares no pod with the block so far: that is another revision, or a promotion. Nor where
        first tokens are late beyond another bound by now."""
        same = not (bound and self.bound) or bound == self.bound
        return same and all(not self.pods[arm] or self.pods[arm].keys() & tracks.keys() for arm, tracks in arms.items())

    def closed(self) -> Block | None:
        """The block without what the operator's probes did; None where they did too much of it."""
        stable, canary = (without_probes(self.pods[arm], self.asked[arm]) for arm in (Arm.STABLE, Arm.CANARY))
        return None if stable is None or canary is None else Block(stable=stable, canary=canary, bound=self.bound)


class Collector:
    """Feeds on ticks. Times are seconds of any clock (one that runs back is a gap); pod keys are unique within an arm.

    A delta counts only between two successive ticks that its pod answered, so both arms always cover the same time.
    What probes did is taken out of blocks (see `probed`), not out of the guards' windows: they tell of the canary too.
    """

    def __init__(self, block_seconds: float, warmup_seconds: float, ttft_limit: float | None = None) -> None:
        self.ttft_limit = ttft_limit  # seconds to the first token; may change at any time
        self._block_seconds = block_seconds
        self._warmup_seconds = warmup_seconds
        self._dropped: Counter[str] = Counter()
        self._intervals: deque[float] = deque(maxlen=USUAL_INTERVALS)
        self._now: float | None = None
        self._bound: float | None = None
        self._ticks = 0
        self._tracks: dict[tuple[Arm, str], _Track] = {}
        self._block = _OpenBlock()

    @property
    def dropped(self) -> Mapping[str, int]:
        """How often something was left out of blocks: gap, restarted, missed, warm-up, unpaired, replaced, probes."""
        return dict(self._dropped)

    def tick(self, now: float, arms: Mapping[Arm, Mapping[str, Observation]]) -> Block | None:
        """Take in what each arm's pods answered at `now`; returns a block when this tick has filled one.

        Pass only pods that answered and are not draining. An arm that is empty or absent is fine.
        """
        interval = 0.0 if self._now is None else now - self._now
        self._forget(now)
        self._ticks += 1
        samples = (observation.sample for observations in arms.values() for observation in observations.values())
        self._bound = bound_within(self.ttft_limit, samples)
        for arm, observations in arms.items():
            for pod, observation in observations.items():
                self._observe(now, arm, pod, observation)
        self._now = now
        return self._pair(interval)

    def recent(self, arm: Arm) -> Tally:
        """The arm's last 200 drafts, or its last scrape if that has more; warm-up included. For guards and status."""
        window: dict[int, Tally] = {}
        for track in self._current(arm).values():
            for tick, delta in track.window:
                window[tick] = window.get(tick, Tally.zero()) + delta
        total = Tally.zero()
        for tick in sorted(window, reverse=True):
            total += window[tick]
            if total.drafts >= RECENT_DRAFTS:
                break
        return total

    def last(self, arm: Arm) -> Tally | None:
        """What the arm did between its last two scrapes; None before there are two."""
        deltas = [track.delta for track in self._current(arm).values() if track.delta is not None]
        return sum(deltas, Tally.zero()) if deltas else None

    def counting(self, arm: Arm) -> Mapping[str, Tally]:
        """What each of the arm's pods did between the last two ticks, of those whose delta may count in a block."""
        return {pod: track.delta for pod, track in _counting(self._current(arm)).items() if track.delta is not None}

    def fell(self, arm: Arm) -> bool:
        """Acceptance of the first drafted token has fallen steeply from the last scrape but one to the last one."""
        ticks: dict[int, Tally] = {}
        for track in self._current(arm).values():
            for tick, delta in islice(reversed(track.window), 2):
                ticks[tick] = ticks.get(tick, Tally.zero()) + delta
        before, after = (
            position_acceptance(ticks.get(tick, Tally.zero()), 0) for tick in (self._ticks - 1, self._ticks)
        )
        known = all(ticks[tick].drafts >= FEW_DRAFTS for tick in ticks)
        return known and before is not None and after is not None and after < STEEP * before

    def running(self, arm: Arm) -> float | None:
        """Requests running on the arm's pods at the last scrape; None if any pod does not say, or none answered."""
        return _total(track.observation.sample.running for track in self._current(arm).values())

    def kv_tokens(self, arm: Arm) -> float | None:
        """Tokens that fit into the smallest KV cache of the arm's pods; None if any does not say, or none answered."""
        known = [track.observation.sample.kv_tokens for track in self._current(arm).values()]
        return None if None in known else min((value for value in known if value is not None), default=None)

    def stalled_seconds(self, arm: Arm) -> float:
        """For how long a pod has been seen to run requests while its engine made no step, the longest of the arm's. The
        interval before it was first seen does not count: a request that has just arrived has yet to have a step."""
        since = [track.stalled_since for track in self._current(arm).values() if track.stalled_since is not None]
        return max((self._now or 0.0) - min(since), 0.0) if since else 0.0

    def _forget(self, now: float) -> None:
        """After a gap (the operator was down) forget everything; otherwise the pods that were silent for that long."""
        if self._now is None:
            return
        limit = max(3 * max(self._intervals, default=self._block_seconds), MIN_GAP)
        if now > self._now:
            self._intervals.append(min(now - self._now, limit))  # a gap does not become usual at once
        if not 0 <= now - self._now <= limit:
            self._dropped["gap"] += 1
            self._tracks.clear()
            self._block = _OpenBlock()
        self._tracks = {key: track for key, track in self._tracks.items() if now - track.seen <= limit}

    def _observe(self, now: float, arm: Arm, pod: str, observation: Observation) -> None:
        track = self._tracks.get((arm, pod))
        delta = None if track is None else difference(track.observation, observation, now - track.seen, self._bound)
        if track is None or delta is None:
            self._dropped["restarted"] += track is not None
            self._tracks[arm, pod] = _Track(since=now, seen=now, observation=observation)
            return
        successive = track.seen == self._now
        warm = track.seen >= track.since + self._warmup_seconds
        self._dropped["missed"] += not successive
        self._dropped["warm-up"] += not warm
        track.counts = successive and warm
        track.delta = delta
        since = now if track.stalled_since is None else track.stalled_since
        track.stalled_since = since if _stalled(observation, delta) else None
        track.window.append((self._ticks, delta))
        track.asked = observation.asked.since(track.observation.asked)
        track.observation, track.seen = observation, now

    def _current(self, arm: Arm) -> dict[str, _Track]:
        """The arm's pods that answered the last tick."""
        return {pod: track for (of, pod), track in self._tracks.items() if of == arm and track.seen == self._now}

    def _pair(self, interval: float) -> Block | None:
        counting = {arm: _counting(self._current(arm)) for arm in Arm}
        if not all(counting.values()):
            self._dropped["unpaired"] += bool(self._current(Arm.CANARY))
            return None
        if not self._block.continues(counting, self._bound):
            self._dropped["replaced"] += 1
            self._block = _OpenBlock()
        self._block.add(counting, interval, self._bound)
        if self._block.seconds + interval / 2 < self._block_seconds:  # to the nearest tick: scrapes jitter
            return None
        full, self._block = self._block.closed(), _OpenBlock()
        self._dropped["probes"] += full is None
        return full


def _counting(tracks: Mapping[str, _Track]) -> dict[str, _Track]:
    return {pod: track for pod, track in tracks.items() if track.counts and track.delta is not None}


def _stalled(observation: Observation, delta: Tally) -> bool:
    sample = observation.sample
    return bool(sample.running) and sample.iterations is not None and delta.iterations == 0


def _total(values: Iterable[float | None]) -> float | None:
    known = list(values)
    if not known or None in known:
        return None
    return sum(value for value in known if value is not None)
