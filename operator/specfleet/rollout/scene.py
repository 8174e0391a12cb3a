"""Everything one pass decides from, made once from the raw objects and what was measured. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.judgement.agreement import Answers
from specfleet.judgement.guards import ProbeFacts
from specfleet.judgement.selfcheck import SelfCheck
from specfleet.resources.devices import Devices
from specfleet.resources.evidence import read_evidence
from specfleet.rollout.capacity import bounds_of, by_route, may_borrow
from specfleet.rollout.memory import Memory
from specfleet.rollout.roles import Roles, assign
from specfleet.rollout.routing import Routing, selected, through_route, through_service
from specfleet.rollout.shape import Bounds
from specfleet.rollout.world import Life, Objects, Pod, Raw, Revision, revisions
from specfleet.telemetry.counters import Tally
from specfleet.telemetry.evidence import EMPTY, Evidence
from specfleet.telemetry.load import Load, overload


@dataclass(frozen=True, slots=True)
class ArmSeen:
    """What the scraper saw of one arm, and of which revision.

    `fell` says that its acceptance did, from one scrape to the next. `kv_tokens` fit into the smallest KV cache of its
    pods, None where one does not say. `unreachable` says which pod does not answer that must (any of a canary's; of
    stable it is enough that one does), empty if none; and for how many seconds no pod of the arm has answered.
    """

    revision: str = ""
    recent: Tally = field(default_factory=Tally.zero)
    last: Tally | None = None
    running: float | None = None
    stalled: float = 0.0  # seconds
    fell: bool = False
    kv_tokens: float | None = None
    unreachable: str = ""
    unreachable_for: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What was measured since the last pass.

    `evidence_of` are the uids of the two revisions that the evidence compares, stable first; `dropped` counts what was
    in no block of it, by reason, as it stood when the last block was complete. `load` is the fleet's peak of late.
    `check` is what halves of stable's pods showed against each other. By (pod uid, restarts): `probes`, of which a pod
    that has not finished its first ones has none; `answers` to the built-in prompts, the last askings that were
    answered whole; `tried`, when one of them last was not. Without `probing` nobody is asked anything. By pod uid:
    `idle` is when a scrape last saw it without requests, `requested` when a new one was last seen; none or 0 means
    unknown. `taken` are names ("Service/llama") that exist and are not ours; `refused` is what the API server said to a
    write of this pass; `rival` is an older SDD that has the same route or hostname; `devices` is what each node has of
    the accelerators, None where that is not known or nothing waits for any. `since` is when the looking began: the time
    before, in which the operator was away, counts nowhere.
    """

    since: float = 0.0
    stable: ArmSeen = field(default_factory=ArmSeen)
    canary: ArmSeen = field(default_factory=ArmSeen)
    evidence: Evidence = EMPTY
    evidence_of: tuple[str, str] | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)
    probing: bool = True
    probes: Mapping[Life, ProbeFacts] = field(default_factory=dict)
    answers: Mapping[Life, Sequence[Answers]] = field(default_factory=dict)
    tried: Mapping[Life, float] = field(default_factory=dict)
    load: Load | None = None
    check: SelfCheck | None = None
    idle: Mapping[str, float] = field(default_factory=dict)
    requested: Mapping[str, float] = field(default_factory=dict)
    taken: tuple[str, ...] = ()
    refused: str = ""
    rival: str = ""
    devices: Mapping[str, Devices] | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """One SDD at one pass. `spec` is the valid spec in force, `written` the raw spec that it was read from."""

    sdd: Raw
    spec: SpecDecodeDeploymentSpec
    written: Raw
    objects: Objects
    revisions: Mapping[str, Revision]
    roles: Roles
    routing: Routing
    memory: Memory
    seen: Seen
    now: float

    @property
    def name(self) -> str:
        """The SDD's name, and that of the Service that clients use."""
        return str(self.sdd["metadata"]["name"])

    @property
    def uid(self) -> str:
        """The SDD's uid, which its objects name as their controller."""
        return str(self.sdd["metadata"]["uid"])

    @property
    def selected(self) -> str | None:
        """The revision that `Service <name>` selects now: None when it selects every one, "" when there is none."""
        return selected(self.objects.services, self.name)

    @property
    def carriers(self) -> frozenset[str]:
        """The revisions whose pods get requests now; callers inside the cluster use the Service beside any route."""
        return self.routing.carriers | ({self.selected} if self.selected else frozenset())

    @property
    def borrows(self) -> bool:
        """No GPU is free and the user set no surge: pods go before others come. A rollout remembers that it does so."""
        if self.memory.rollout:
            return self.memory.rollout.borrowed
        stuck = any(revision.roomless for revision in self.revisions.values())
        return stuck and may_borrow(self.spec)

    def bounds(self, borrowed: bool) -> Bounds:
        """How many pods a rollout may have."""
        return bounds_of(self.spec, borrowed)

    def overload(self, pods: int) -> str:
        """Why so many pods of stable could not hold the fleet's load of late; empty if they could."""
        limit = self.roles.stable.frozen("maxNumSeqs") if self.roles.stable else None  # not what is on its way
        return overload(self.seen.load, pods, limit)

    def probed(self, pods: tuple[Pod, ...]) -> int:
        """How many of the ready ones have answered every probe well; all of them where nobody is asked."""
        ready = [pod for pod in pods if pod.taking_traffic]
        if not self.seen.probing:
            return len(ready)
        return sum(_well(self.seen.probes.get(pod.life)) for pod in ready)


def _well(facts: ProbeFacts | None) -> bool:
    return facts is not None and facts.settled and facts.passed > 0 and not facts.failed and not facts.unknown


def remembered(objects: Objects) -> Memory:
    """The memory in the evidence ConfigMap; empty where there is none, or its checksum does not hold."""
    data = read_evidence(objects.evidence) if objects.evidence else None
    return Memory.from_json(data.get("memory", "")) if data else Memory()


def set_scene(
    sdd: Raw,
    spec: SpecDecodeDeploymentSpec,
    written: Mapping[str, Any],
    identity: str,
    objects: Objects,
    seen: Seen,
    now: float,
) -> Scene:
    """The scene for a valid spec; `identity` is the revision identity of `written`."""
    found = revisions(objects)
    roles = assign(found, identity, spec.rollout.retain_seconds, now)
    if by_route(spec):
        routing = through_route(sdd, spec.traffic, objects, found, seen.rival)
    else:
        routing = through_service(sdd["metadata"]["name"], objects, found)
    memory = remembered(objects)
    if not memory.spec:  # nothing is remembered, or it was lost in the middle of a rollout
        memory = replace(memory, base_weight=routing.weight_at_rest)
    return Scene(sdd, spec, written, objects, found, roles, routing, memory, seen, now)
