"""Keeps what was measured of each SDD between passes: ticks of scrapes, blocks of evidence, answers to probes."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from specfleet.controller.cache import Key
from specfleet.controller.probes import Ask, probe
from specfleet.judgement.guards import ProbeFacts
from specfleet.judgement.selfcheck import Checked, SelfChecker
from specfleet.plan import Plan
from specfleet.resources.evidence import COMPARED, EVIDENCE, read_evidence
from specfleet.rollout.comparison import Comparison
from specfleet.rollout.scene import ArmSeen, Seen, remembered
from specfleet.rollout.world import Objects, Pod, Revision, revisions
from specfleet.telemetry.collector import Collector
from specfleet.telemetry.counters import Observation
from specfleet.telemetry.evidence import EMPTY, Arm, Block, Evidence, from_json
from specfleet.telemetry.load import Peaks
from specfleet.telemetry.page import MalformedPage, Sample, parse

MAX_WARMUP = 60.0  # seconds after a pod's first answer in which compilers and caches still warm up
RETRY_UNKNOWN = 15.0  # seconds until a probe that could not be asked is asked again
AT_ONCE = 32  # scrapes in flight, over all SDDs
PROBES_AT_ONCE = 32  # pods that are asked at a time; apart, since a stuck pod is asked for minutes


class Unreachable(Exception):
    """A pod's metrics could not be read; the text says why."""


Scrape = Callable[[Pod], Awaitable[bytes]]  # the page of one pod, bounded in bytes and time; raises Unreachable


@dataclass(slots=True)
class _Watch:
    """One SDD. `arms` are the revisions by arm, `uids` the two that `evidence` compares."""

    since: float
    arms: dict[Arm, str] = field(default_factory=dict)
    interval: float = 0.0
    block_seconds: float = 60.0
    collector: Collector = field(default_factory=lambda: Collector(60.0, MAX_WARMUP))
    peaks: Peaks = field(default_factory=Peaks)
    check: SelfChecker = field(default_factory=lambda: SelfChecker(""))
    uids: tuple[str, str] | None = None
    evidence: Evidence = EMPTY
    ticked: float | None = None
    lost: Counter[str] = field(default_factory=Counter)  # what is in no block, beside what `collector` counts
    dropped: Mapping[str, int] = field(default_factory=dict)  # both, as of `noted`
    noted: float = 0.0
    carrying_since: float | None = None
    idle: dict[str, float] = field(default_factory=dict)
    requested: dict[str, tuple[float, float]] = field(default_factory=dict)  # last when, and how many in all by then
    looked: frozenset[tuple[str, int]] = frozenset()  # pods of the last tick, with their restarts
    probes: dict[tuple[str, int], tuple[float, ProbeFacts]] = field(default_factory=dict)
    asking: dict[tuple[str, int], asyncio.Task[None]] = field(default_factory=dict)
    dark_since: dict[Arm, float] = field(default_factory=dict)
    dark_why: dict[Arm, str] = field(default_factory=dict)


class Telemetry:
    """Measures when a pass looks, at most once an interval; `news(key)` is called when a probe has its answer, and
    `checked` when halves of a stable revision's pods were compared."""

    def __init__(
        self,
        scrape: Scrape,
        ask: Ask,
        clock: Callable[[], float],
        news: Callable[[Key], None],
        checked: Callable[[Key, Checked], None] = lambda key, found: None,
    ) -> None:
        self._scrape = scrape
        self._ask = ask
        self._clock = clock
        self._news = news
        self._checked = checked
        self._watches: dict[Key, _Watch] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._probe_slots = asyncio.Semaphore(PROBES_AT_ONCE)

    async def observe(self, key: Key, objects: Objects) -> Seen:
        """What is known now; scrapes every ready pod first, if the last time is an interval ago."""
        watch = self._watches.setdefault(key, _Watch(since=self._clock()))
        self._bind(watch, objects)
        found = revisions(objects)
        now = self._clock()
        self._forget_pods(watch, found.values(), now)
        if watch.arms and (watch.ticked is None or now - watch.ticked >= 0.9 * watch.interval):
            interval = now - (watch.ticked or now)
            await self._tick(watch, found, now)
            if Arm.CANARY not in watch.arms:
                self._check(key, watch, interval)
        return Seen(
            since=watch.since,
            stable=_arm_seen(watch, Arm.STABLE, self._clock()),
            canary=_arm_seen(watch, Arm.CANARY, self._clock()),
            load=watch.peaks.load,
            check=watch.check.seen,
            evidence=watch.evidence,
            evidence_of=watch.uids,
            dropped=watch.dropped,
            probes=dict(_answers(watch)),
            idle=dict(watch.idle),
            requested={uid: when for uid, (when, _) in watch.requested.items()},
        )

    def follow(self, key: Key, planned: Plan) -> None:
        """Take from a plan which pods form which arm, how often to look, and whom to ask."""
        watch, roles, spec = self._watches[key], planned.roles, planned.spec
        if roles is None or spec is None:
            return
        stable = roles.stable or roles.target
        named = ((Arm.STABLE, stable), (Arm.CANARY, roles.canary))
        arms = {arm: revision.name for arm, revision in named if revision}
        analysis = spec.rollout.analysis
        if arms.get(Arm.STABLE) != watch.arms.get(Arm.STABLE):
            watch.peaks = Peaks()
            watch.check = SelfChecker(stable.uid if stable else "")
        if arms != watch.arms or analysis.block_seconds != watch.block_seconds:
            watch.arms, watch.block_seconds = arms, float(analysis.block_seconds)
            watch.lost.update(watch.collector.dropped)
            watch.collector = Collector(watch.block_seconds, min(MAX_WARMUP, watch.block_seconds))
            watch.dark_since.clear()
        watch.collector.ttft_limit = spec.slo.time_to_first_token if spec.slo else None
        watch.interval = planned.next
        watch.carrying_since = (watch.carrying_since or self._clock()) if planned.carrying else None
        for pod in planned.probe:
            self._start_probe(key, watch, pod, planned)

    def forget(self, key: Key) -> None:
        """The SDD is gone."""
        watch = self._watches.pop(key, None)
        for task in watch.asking.values() if watch else ():
            task.cancel()

    def _bind(self, watch: _Watch, objects: Objects) -> None:
        """Evidence belongs to two revisions. After a restart it is read back; with another pair it starts afresh."""
        rollout = remembered(objects).rollout
        uids = rollout.uids if rollout else None
        if uids == watch.uids:
            return
        watch.uids, watch.evidence, watch.lost, watch.dropped = uids, EMPTY, Counter(), {}
        watch.noted = self._clock()
        data = read_evidence(objects.evidence) if objects.evidence else None
        if data is None or uids is None:
            return  # what is stored is then a past rollout's
        about = Comparison.from_json(data.get(COMPARED, ""))
        if about:
            if about.uids != uids:
                return
            watch.lost = Counter(about.dropped) + Counter(away=1)
            watch.dropped = about.dropped
        with suppress(ValueError):
            watch.evidence = from_json(data.get(EVIDENCE, ""))

    def _forget_pods(self, watch: _Watch, found: Iterable[Revision], now: float) -> None:
        there = {(pod.uid, pod.restarts) for revision in found for pod in revision.pods}
        uids = {uid for uid, _ in there}
        stale = [pod for pod, (when, facts) in watch.probes.items() if facts.unknown and now - when > RETRY_UNKNOWN]
        for pod in {*stale, *(watch.probes.keys() - there)}:
            del watch.probes[pod]
        watch.idle = {uid: when for uid, when in watch.idle.items() if uid in uids}
        watch.requested = {uid: known for uid, known in watch.requested.items() if uid in uids}

    async def _tick(self, watch: _Watch, found: dict[str, Revision], now: float) -> None:
        watch.ticked = now
        pods = [pod for revision in found.values() for pod in revision.pods if pod.ready and not pod.going and pod.ip]
        watch.looked = frozenset((pod.uid, pod.restarts) for pod in pods)
        answers = dict(zip((pod.uid for pod in pods), await asyncio.gather(*map(self._sample, pods)), strict=True))
        seen: dict[Arm, dict[str, Observation]] = {}
        for arm, name in watch.arms.items():
            mine = [pod for pod in pods if pod.serving and pod in found[name].pods] if name in found else []
            good = {pod: answers[pod.uid] for pod in mine}
            seen[arm] = {
                pod.name: Observation((pod.uid, pod.restarts), sample)
                for pod, sample in good.items()
                if isinstance(sample, Sample)
            }
            _note_darkness(watch, arm, [item for item in good.values() if isinstance(item, str)], bool(seen[arm]), now)
        watch.idle |= {uid: now for uid, sample in answers.items() if isinstance(sample, Sample) and _idle(sample)}
        if not watch.dark_why:
            watch.peaks.add(now, [item.sample for arm in seen.values() for item in arm.values()])
        for uid, sample in answers.items():
            if isinstance(sample, Sample):
                count = sample.http_requests or 0.0
                before = watch.requested.get(uid, (0.0, count))  # of a pod that was not seen before nothing is known
                watch.requested[uid] = before if before[1] == count else (now, count)
        _note_block(watch, watch.collector.tick(now, seen), now)

    def _check(self, key: Key, watch: _Watch, interval: float) -> None:
        """Of a fleet at rest: stable's pods against each other."""
        watch.check.add(watch.collector.counting(Arm.STABLE), interval)
        if found := watch.check.split():
            self._checked(key, found)

    async def _sample(self, pod: Pod) -> Sample | str:
        async with self._slots:
            try:
                return parse(await self._scrape(pod))
            except (Unreachable, MalformedPage) as error:
                return f"{pod.name}: {error}"

    def _start_probe(self, key: Key, watch: _Watch, pod: Pod, planned: Plan) -> None:
        mark = (pod.uid, pod.restarts)
        if mark in watch.asking or mark in watch.probes or mark not in watch.looked:
            return

        async def run() -> None:
            async with self._probe_slots:
                facts = await probe(self._ask, key.namespace, pod, planned.probed_payload)
            watch.probes[mark] = (self._clock(), facts)

        def done(task: asyncio.Task[None]) -> None:
            watch.asking.pop(mark, None)
            if not task.cancelled():
                self._news(key)

        watch.asking[mark] = asyncio.ensure_future(run())
        watch.asking[mark].add_done_callback(done)


def _answers(watch: _Watch) -> Iterator[tuple[tuple[str, int], ProbeFacts]]:
    """Bad news at once; good news when a scrape after the last answer, and one before the first, tell what was drafted
    for them: until then nobody knows whether the drafter is any good."""
    for mark, (when, facts) in watch.probes.items():
        if facts.failed or facts.unknown or (watch.ticked is not None and watch.ticked > when):
            yield mark, facts


def _note_darkness(watch: _Watch, arm: Arm, why: list[str], answered: bool, now: float) -> None:
    """An arm is dark when it has ready pods and none of them answers. Of the canary every pod must: one that does not
    may be the one that fails."""
    missing = why and (arm is Arm.CANARY or not answered)
    watch.dark_why.pop(arm, None)
    if missing:
        watch.dark_why[arm] = f"no metrics of {arm}: {why[0]}"
    if missing and not answered:
        watch.dark_since.setdefault(arm, now)
    else:
        watch.dark_since.pop(arm, None)


def _note_block(watch: _Watch, block: Block | None, now: float) -> None:
    """Add a block, if the canary carried for the whole of it. What was left out is told with each block, or where none
    comes once in a block's time: it is stored, and a count that moves with each tick would be written at each."""
    if watch.uids is None:
        return
    whole = watch.carrying_since is not None and now - watch.carrying_since >= watch.block_seconds
    if block and whole:
        watch.evidence = watch.evidence.add(block)
    elif block:
        watch.lost["early"] += 1
    if block or now - watch.noted >= watch.block_seconds:
        watch.dropped, watch.noted = dict(watch.lost + Counter(watch.collector.dropped)), now


def _arm_seen(watch: _Watch, arm: Arm, now: float) -> ArmSeen:
    collector, dark = watch.collector, watch.dark_since.get(arm)
    return ArmSeen(
        revision=watch.arms.get(arm, ""),
        recent=collector.recent(arm),
        last=collector.last(arm),
        running=collector.running(arm),
        stalled=collector.stalled_scrapes(arm),
        fell=collector.fell(arm),
        kv_tokens=collector.kv_tokens(arm),
        unreachable=watch.dark_why.get(arm, ""),
        unreachable_for=0.0 if dark is None else now - dark,
    )


def _idle(sample: Sample) -> bool:
    return sample.running == 0 and sample.waiting == 0
