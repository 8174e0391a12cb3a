"""Keeps what was measured of each SDD between passes: ticks of scrapes, blocks of evidence, answers to probes."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from specfleet.controller.cache import Key
from specfleet.controller.probes import PROBES_AT_ONCE, Ask, Probes
from specfleet.judgement.selfcheck import Checked, SelfChecker
from specfleet.plan import Plan
from specfleet.resources.evidence import COMPARISON, EVIDENCE, read_evidence
from specfleet.rollout.comparison import Comparison
from specfleet.rollout.scene import ArmSeen, Seen, remembered
from specfleet.rollout.world import Life, Objects, Pod, Revision, revisions
from specfleet.telemetry.asked import Asked
from specfleet.telemetry.collector import MAX_WARMUP, Collector
from specfleet.telemetry.counters import Observation
from specfleet.telemetry.evidence import EMPTY, Arm, Block, Evidence, from_json
from specfleet.telemetry.load import Peaks
from specfleet.telemetry.page import MalformedPage, Sample, parse

AT_ONCE = 32  # scrapes in flight, over all SDDs
OF_ONE_SDD = 8  # of those: a fleet whose pages are slow leaves room for the others


class Unreachable(Exception):
    """A pod's metrics could not be read; the text says why."""


Scrape = Callable[[Pod], Awaitable[bytes]]  # the page of one pod, bounded in bytes and time; raises Unreachable


@dataclass(slots=True)
class _Watch:
    """One SDD. `arms` are the revisions by arm, `uids` the two that `evidence` compares."""

    since: float
    probes: Probes
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(OF_ONE_SDD))
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
    looked: frozenset[Life] = frozenset()  # whose pages the last tick asked for
    dark_since: dict[Arm, float] = field(default_factory=dict)
    dark_why: dict[Arm, str] = field(default_factory=dict)


class Telemetry:
    """Measures when a pass looks, at most once an interval; `news(key)` is called when a pod has answered its probes,
    `checked` when halves of a stable revision's pods were compared, and `unread` for every page that could not be read.
    Without `probing` no pod is asked."""

    def __init__(
        self,
        scrape: Scrape,
        ask: Ask,
        clock: Callable[[], float],
        news: Callable[[Key], None],
        checked: Callable[[Key, Checked], None] = lambda key, found: None,
        unread: Callable[[], None] = lambda: None,
        probing: bool = True,
    ) -> None:
        self._scrape = scrape
        self._ask = ask
        self._clock = clock
        self._news = news
        self._checked = checked
        self._unread = unread
        self._probing = probing
        self._watches: dict[Key, _Watch] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._probe_slots = asyncio.Semaphore(PROBES_AT_ONCE)

    async def observe(self, key: Key, objects: Objects) -> Seen:
        """What is known now; scrapes every ready pod first, if the last time is an interval ago."""
        watch = self._watches.setdefault(key, _Watch(self._clock(), Probes(self._ask, self._clock, self._probe_slots)))
        self._bind(watch, objects)
        found = revisions(objects)
        now = self._clock()
        _forget_pods(watch, found.values())
        since = None if watch.ticked is None else now - watch.ticked
        if watch.arms and (since is None or not 0 <= since < 0.9 * watch.interval):  # below 0 where the clock was set
            interval = max(0.0, since or 0.0)
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
            probing=self._probing,
            probes=watch.probes.facts(watch.ticked),
            answers=watch.probes.answers(),
            tried=watch.probes.tried(),
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
        for asking in planned.probe:
            if asking.pod.life in watch.looked:
                watch.probes.start(key.namespace, asking, lambda: self._news(key))

    def forget(self, key: Key) -> None:
        """The SDD is gone."""
        watch = self._watches.pop(key, None)
        if watch:
            watch.probes.close()

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
        about = Comparison.from_json(data.get(COMPARISON, ""))
        if about:
            if about.uids != uids:
                return
            watch.lost = Counter(about.dropped) + Counter(away=1)
            watch.dropped = about.dropped
        with suppress(ValueError):
            watch.evidence = from_json(data.get(EVIDENCE, ""))

    async def _tick(self, watch: _Watch, found: dict[str, Revision], now: float) -> None:
        watch.ticked = now
        pods = [pod for revision in found.values() for pod in revision.pods if pod.ready and not pod.going and pod.ip]
        watch.looked = frozenset(pod.life for pod in pods)
        pages = await asyncio.gather(*(self._sample(watch, pod) for pod in pods))
        answers = dict(zip((pod.uid for pod in pods), pages, strict=True))
        good = {uid: answer for uid, answer in answers.items() if isinstance(answer, _Page)}
        seen: dict[Arm, dict[str, Observation]] = {}
        for arm, name in watch.arms.items():
            mine = [pod for pod in pods if pod.serving and pod in found[name].pods] if name in found else []
            seen[arm] = {
                pod.name: Observation(pod.life, good[pod.uid].sample, good[pod.uid].asked)
                for pod in mine
                if pod.uid in good
            }
            silent = [answer for pod in mine if isinstance(answer := answers[pod.uid], str)]
            _note_darkness(watch, arm, silent, bool(seen[arm]), now)
        _note_requests(watch, good, now)
        told = [] if watch.dark_why else [item.sample for arm in seen.values() for item in arm.values()]
        watch.peaks.add(now, told)  # nothing where somebody is silent: what is old goes all the same
        _note_block(watch, watch.collector.tick(now, seen), now)

    def _check(self, key: Key, watch: _Watch, interval: float) -> None:
        """Of a fleet at rest: stable's pods against each other."""
        watch.check.add(watch.collector.counting(Arm.STABLE), interval)
        if found := watch.check.split():
            self._checked(key, found)

    async def _sample(self, watch: _Watch, pod: Pod) -> "_Page | str":
        async with watch.slots, self._slots:
            try:
                return _Page(parse(await self._scrape(pod)), watch.probes.asked(pod))
            except (Unreachable, MalformedPage) as error:
                self._unread()
                return f"{pod.name}: {error}"


@dataclass(frozen=True, slots=True)
class _Page:
    """What a pod's page said, and what it had been asked by then."""

    sample: Sample
    asked: Asked


def _forget_pods(watch: _Watch, found: Iterable[Revision]) -> None:
    there = {pod.life for revision in found for pod in revision.pods}
    uids = {uid for uid, _ in there}
    watch.probes.keep(there)
    watch.idle = {uid: when for uid, when in watch.idle.items() if uid in uids}
    watch.requested = {uid: known for uid, known in watch.requested.items() if uid in uids}


def _note_requests(watch: _Watch, good: dict[str, _Page], now: float) -> None:
    """Which pods hold no request, and which have got a new one from somebody else than us."""
    watch.idle |= {uid: now for uid, page in good.items() if _idle(page.sample)}
    for uid, page in good.items():
        count = max(0.0, (page.sample.http_requests or 0.0) - page.asked.requests)
        before = watch.requested.get(uid, (0.0, count))  # of a pod that was not seen before nothing is known
        watch.requested[uid] = before if before[1] == count else (now, count)


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
        stalled=collector.stalled_seconds(arm),
        fell=collector.fell(arm),
        kv_tokens=collector.kv_tokens(arm),
        unreachable=watch.dark_why.get(arm, ""),
        unreachable_for=0.0 if dark is None else now - dark,
    )


def _idle(sample: Sample) -> bool:
    return sample.running == 0 and sample.waiting == 0
