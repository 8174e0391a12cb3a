"""Runs the operator's real passes over a fake cluster on a fake clock, when the work queue would run them."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fake_fleet import Clock, FakeFleet
from fake_gateway import FakeGateway, gateway_object
from fake_kube import Crash, FakeKube
from fake_vllm import Behaviour
from harness.manifest import EAGLE3
from specfleet.api import names
from specfleet.controller.cache import Cache, Key
from specfleet.controller.protocol import SDD, UNLABELLED, WATCHED, ApiError
from specfleet.controller.reconcile import Reconciler
from specfleet.controller.survey import Survey
from specfleet.controller.telemetry import Telemetry
from specfleet.rollout.scene import Seen
from specfleet.rollout.world import Objects, Revision
from transcript import Telling, Transcript, revisions_of
from watchdog import Watchdog

Object = dict[str, Any]

DEBOUNCE = 0.5  # seconds between a watch event and the pass that it asks for
RESTART = 3.0  # seconds until a dead operator runs again
RETRY = 2.0  # seconds until a failed pass is tried again
SPEC: Mapping[str, Any] = {
    "replicas": 4,
    **EAGLE3,
    "pod": {"startupSeconds": 120, "drainSeconds": 60},
    "rollout": {
        "steps": [{"weight": 20, "minSeconds": 10}, {"weight": 50, "minSeconds": 10}],
        "retainSeconds": 60,
        "analysis": {"scrapeSeconds": 5, "blockSeconds": 10, "maxSeconds": 1200},
    },
}


@dataclass(slots=True)
class Story:
    """One SDD `chat/qwen` in one cluster. `lag` is for how many seconds watch events stay on their way.

    `route` is the HTTPRoute by which clients come; empty where they use the Service. `before` lies there already. The
    operator may read `nodes` or not.
    """

    gpus: int | Mapping[str, int] | None = None
    unavailable: int = 0
    surge: int = 1
    lag: float = 0.0
    nodes: bool = False
    route: str = ""
    before: tuple[Object, ...] | list[Object] = ()
    spec: Mapping[str, Any] = field(default_factory=dict)
    key: Key = field(default_factory=lambda: Key("chat", "qwen"))
    clock: Clock = field(default_factory=Clock)
    transcript: Transcript = field(init=False)
    kube: FakeKube = field(init=False)
    fleet: FakeFleet = field(init=False)
    watchdog: Watchdog = field(init=False)
    restarts: int = 0
    passes: int = 0
    deaf: bool = False  # watch events are lost
    _events: list[tuple[float, str, Object]] = field(default_factory=list)
    _due: float | None = None
    _stopped_until: float | None = None
    _cache: Cache = field(default_factory=Cache)
    telemetry: Telemetry = field(init=False)
    _reconciler: Reconciler = field(init=False)

    def __post_init__(self) -> None:
        self.kube = FakeKube(self.clock)
        self.watchdog = Watchdog(self.kube, self.key.namespace, self.key.name, self.unavailable, self.surge)
        gateway = FakeGateway(self.kube, self.clock, self.watchdog) if self.route else None
        self.watchdog.route = self.route
        self.fleet = FakeFleet(self.kube, self.clock, self.watchdog, self.gpus, gateway)
        self.transcript = Transcript(self.key, self.fleet, self.clock.now)
        self.kube.watches.append(self._heard)
        self._boot()
        for raw in (gateway_object(), *self.before):
            self.kube.put(raw)
        self.kube.put(
            {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "metadata": {"name": self.key.name, "namespace": self.key.namespace},
                "spec": _merged(SPEC, self.spec),
            }
        )

    def fork(self, lag: float = 0.0) -> "Story":
        """Another story that begins where this one is, with an operator that has just started."""
        like = {"nodes": self.nodes, "route": self.route, "spec": self.spec, "key": self.key}
        other = Story(self.gpus, self.unavailable, self.surge, lag, **like)
        other.clock.now = other.transcript.began = self.clock.now
        other.kube.copy_from(self.kube)
        other.fleet.copy_from(self.fleet)
        other._events.clear()
        other._stopped_until = other._due = self.clock.now
        return other

    # What a story says.

    def say(self, what: str) -> None:
        """A line of what happens to the cluster."""
        self.transcript.line("*", what)

    def edit(self, what: str, **spec: Any) -> None:
        """Someone edits the spec: a merge patch."""
        self.say(what)
        sdd = self.sdd
        self.kube.put({**sdd, "spec": _merged(sdd["spec"], spec)})

    def behave(self, number: int, what: str = "", **how: Any) -> None:
        """From now on the pods of revision `number` behave so."""
        if what:
            self.say(what)
        self.fleet.behave(number, Behaviour(**how))

    def restart(self, what: str) -> None:
        """The operator dies, and starts again a little later."""
        self.say(what)
        self._die()

    async def resync(self) -> None:
        """The operator lists everything again, as it does now and then."""
        for resource in WATCHED:
            self._cache.replace(resource, await self.kube.list(resource))
        self._ask(0.0)

    async def away(self, seconds: float, what: str) -> None:
        """The operator is not there for so long."""
        self.restart(what)
        self._stopped_until = self._due = self.clock.now + seconds
        await self.run(seconds)

    def chapter(self) -> None:
        """Begin the transcript here."""
        self.transcript.lines.clear()
        self.transcript.began = self.clock.now

    async def run(self, seconds: float) -> None:
        """Let so much time pass."""
        await self._until(self.clock.now + seconds, lambda: False)

    async def run_until(self, reached: Callable[[], bool], seconds: float = 1500.0) -> None:
        """Let time pass until `reached()`; AssertionError after so many seconds."""
        await self._until(self.clock.now + seconds, reached)
        assert reached(), f"not after {seconds} s:\n{self.text()}"

    async def run_until_reason(self, *reasons: str, seconds: float = 1500.0) -> None:
        """Let time pass until status gives one of the reasons."""
        await self.run_until(lambda: self.reason in reasons, seconds)

    # What can be seen.

    @property
    def sdd(self) -> Object:
        """The SDD."""
        found = self.kube.find(names.KIND, self.key.namespace, self.key.name)
        assert found is not None
        return found

    @property
    def status(self) -> Object:
        """Its status."""
        found: Object = self.sdd.get("status") or {}
        return found

    @property
    def reason(self) -> str:
        """The reason in its status."""
        return str(self.status.get("reason", ""))

    @property
    def revisions(self) -> list[Revision]:
        """Every revision, the oldest first."""
        return revisions_of(self.kube)

    def revision(self, number: int) -> Revision:
        """The revision with this number."""
        return next(item for item in self.revisions if item.number == number)

    @property
    def stable(self) -> Revision:
        """The revision with the highest promotion number."""
        return max(self.revisions, key=lambda item: item.promoted)

    @property
    def newest(self) -> str:
        """Name of the revision with the highest number."""
        return self.revisions[-1].name if self.revisions else ""

    @property
    def weights(self) -> dict[str, int]:
        """Percent of new requests by revision, `v1` being the first."""
        aliases = {revision.name: f"v{revision.number}" for revision in self.revisions}
        return {aliases.get(name, name): share for name, share in sorted(self.fleet.shares().items())}

    def text(self) -> str:
        """The transcript, with revisions called v1, v2, ... in the order of their numbers."""
        return "\n".join(self.transcript.lines) + "\n"

    def outcome(self) -> Object:
        """What a story ends with, whatever went wrong on its way."""
        service = self.kube.find("Service", self.key.namespace, self.key.name)
        route = self.kube.find("HTTPRoute", self.key.namespace, self.route)
        return {
            "stable": self.stable.name,
            "pods": {item.name: (item.wanted, item.ready, len(item.pods)) for item in self.revisions},
            "selector": service["spec"]["selector"] if service else None,
            "rules": route["spec"]["rules"] if route else None,
            "latches": {item.name: item.aborted.partition(":")[0] for item in self.revisions if item.aborted},
            "reason": self.reason,
            "children": {kind: [raw["metadata"]["name"] for raw in self.kube.all(kind)] for kind in _COUNTED},
        }

    def objects(self) -> Objects:
        """What the operator knows of the cluster."""
        return self._cache.objects(self.key, self.sdd["metadata"]["uid"])

    async def observe(self) -> Seen:
        """What the operator has measured."""
        return await self.telemetry.observe(self.key, self.objects())

    # The loop.

    async def _until(self, end: float, reached: Callable[[], bool]) -> None:
        while not reached():
            times = [end, self._due, self.fleet.next_change(), *(time for time, _, _ in self._events[:1])]
            self.fleet.advance(max(self.clock.now, min(time for time in times if time is not None)))
            self._deliver()
            if self._due is not None and self._due <= self.clock.now:
                await self._pass()
            if self.clock.now >= end:
                return

    async def _pass(self) -> None:
        self._due = None
        self.passes += 1
        try:
            if self._stopped_until is not None:
                await self._start()
            delay = await self._reconciler.reconcile(self.key)
            for _ in range(16):
                await asyncio.sleep(0)  # probes are asked and answered
        except ApiError as error:
            self.transcript.line("fails", str(error))
            delay = RETRY
        except Crash:
            self._die()
            return
        self.transcript.hold()
        if delay is not None:
            self._ask(delay)

    def _ask(self, after: float) -> None:
        due = self.clock.now + after
        self._due = due if self._due is None else min(self._due, due)

    def _boot(self) -> None:
        self._cache = Cache(sees_gateways=True)
        self.telemetry = Telemetry(self.fleet.scrape, self.fleet.ask, self.clock, lambda _: self._ask(DEBOUNCE))
        recorder = Telling(self.kube, "story", self.clock)
        recorder.line = self.transcript.line
        self._reconciler = Reconciler(
            kube=self.kube,
            cache=self._cache,
            telemetry=self.telemetry,
            survey=Survey(self.kube, self.clock, allowed=self.nodes),
            recorder=recorder,
            planned=lambda key, planned: None,
            clock=self.clock,
        )

    def _die(self) -> None:
        self.telemetry.forget(self.key)
        self.restarts += 1
        self._events.clear()
        self._stopped_until = self.clock.now + RESTART
        self._due = self._stopped_until

    async def _start(self) -> None:
        self._boot()
        for resource in WATCHED:
            self._cache.replace(resource, await self.kube.list(resource))
        self._stopped_until = None

    def _heard(self, event: str, raw: Object) -> None:
        if self._stopped_until is None and not self.deaf and raw["kind"] not in ("Event", "Node"):
            self._events.append((self.clock.now + self.lag, event, raw))

    def _deliver(self) -> None:
        while self._events and self._events[0][0] <= self.clock.now:
            _, event, raw = self._events.pop(0)
            meta = raw["metadata"]
            known = self._cache.sdd(self.key) if raw["kind"] == SDD.kind else None
            if event == "DELETED":
                self._cache.drop(raw["kind"], meta["namespace"], meta["name"], meta["uid"])
            elif raw["kind"] in UNLABELLED_KINDS or names.DEPLOYMENT in (meta.get("labels") or {}):
                self._cache.put(raw)
            told = known is not None and known["metadata"]["generation"] == meta["generation"]
            own = raw["kind"] == "ConfigMap" and event == "MODIFIED"
            if event == "DELETED" or not (told or own):  # the operator's own reports ask for no pass, to save time
                self._ask(DEBOUNCE)


UNLABELLED_KINDS = tuple(resource.kind for resource in UNLABELLED)
_COUNTED = ("ControllerRevision", "Deployment", "Service", "PodDisruptionBudget", "ConfigMap")


def _merged(old: Any, new: Any) -> Any:
    """A JSON merge patch."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    kept = {key: value for key, value in old.items() if new.get(key, value) is not None}
    return {**kept, **{key: _merged(old.get(key), value) for key, value in new.items() if value is not None}}
