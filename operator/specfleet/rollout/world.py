"""The cluster's objects of one SDD, as the rollout sees them: revisions, their pods, and which is stable. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from specfleet.api import names
from specfleet.rollout.stored import parsed

Raw = Mapping[str, Any]
MAX_DIGITS = 9  # of a promotion's number
QUOTA = "exceeded quota"
STUCK = ("CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError")


@dataclass(frozen=True, slots=True)
class Objects:
    """What the cluster held of one SDD at this pass: the owned objects by name, pods and the EndpointSlices of its
    Services as lists. `routes` has the HTTPRoute that it owns, or the user's own that its spec names;
    `gateway_api` is False where the cluster has no such kinds; `no_gateway` names the Gateway of its spec where that is
    known to be absent; `gateways` are those known that its route is attached to, `neighbours` all HTTPRoutes there."""

    revisions: Mapping[str, Raw] = field(default_factory=dict)
    deployments: Mapping[str, Raw] = field(default_factory=dict)
    services: Mapping[str, Raw] = field(default_factory=dict)
    disruption_budgets: Mapping[str, Raw] = field(default_factory=dict)
    evidence: Raw | None = None
    pods: Sequence[Raw] = ()
    routes: Mapping[str, Raw] = field(default_factory=dict)
    endpoint_slices: Sequence[Raw] = ()
    gateway_api: bool = True
    no_gateway: str = ""
    gateways: Sequence[Raw] = ()
    neighbours: Sequence[Raw] = ()


Life = tuple[str, int]  # pod uid, restarts: one life of its vLLM container


@dataclass(frozen=True, slots=True)
class Pod:
    """One vLLM pod. `ended` ones are only a record; `scheduled` is since when it has a node, `loaded` that its startup
    probe has passed, `gone_by` the end of its grace period once it is being deleted: until then it holds its GPUs."""

    name: str
    uid: str
    ip: str
    node: str
    ready: bool
    serving: bool
    going: bool
    ended: bool
    scheduled: float | None
    loaded: bool
    gone_by: float | None
    draining_since: float | None
    deletion_cost: int
    restarts: int
    trouble: str
    unschedulable: str
    started: float
    raw: Raw = field(repr=False, compare=False)

    @property
    def life(self) -> Life:
        """What its counters and its answers to probes are of: the next container begins with none."""
        return self.uid, self.restarts

    @property
    def taking_traffic(self) -> bool:
        """A Service selects it: ready, labelled, and not on its way out."""
        return self.ready and self.serving and not self.going


@dataclass(frozen=True, slots=True)
class Revision:
    """One revision with its ControllerRevision, its Deployment (None before or after its life) and its pods."""

    name: str
    uid: str
    number: int
    promoted: int
    promoted_at: float | None
    aborted: str
    answered: Mapping[str, str] = field(compare=False)
    identity: str
    payload: Raw = field(repr=False, compare=False)
    record: Raw = field(repr=False, compare=False)
    deployment: Raw | None = field(repr=False, compare=False)
    pods: tuple[Pod, ...] = ()

    def frozen(self, key: str) -> int | None:
        """A number of the spec that it was made from; None where that is silent, or the record is not today's."""
        value = self.payload.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def wanted(self) -> int:
        """Replicas its Deployment asks for now."""
        return int(self.deployment["spec"].get("replicas", 1)) if self.deployment else 0

    @property
    def ready(self) -> int:
        """Pods that take traffic."""
        return sum(pod.taking_traffic for pod in self.pods)

    @property
    def draining(self) -> tuple[Pod, ...]:
        """Pods whose serving label is off, the first to be deleted first: they finish what they hold and then go."""
        out = [pod for pod in self.pods if not pod.serving and not pod.going]
        return tuple(sorted(out, key=lambda pod: pod.deletion_cost))

    @property
    def refused(self) -> str:
        """Why pods of it cannot even be created, as its Deployment says: a quota, an admission webhook. Empty if they
        can."""
        conditions = ((self.deployment or {}).get("status") or {}).get("conditions") or ()
        found = (item for item in conditions if item.get("type") == "ReplicaFailure" and item.get("status") == "True")
        return next((str(item.get("message") or item.get("reason")) for item in found), "")

    @property
    def roomless(self) -> str:
        """Why a pod of it finds no accelerator: the scheduler has none, or a quota is used up. Empty if each does."""
        stuck = next((f"{pod.name}: {pod.unschedulable}" for pod in self.pods if pod.unschedulable), "")
        return stuck or (self.refused if QUOTA in self.refused else "")

    @property
    def alive(self) -> bool:
        """It has, or is about to have, pods."""
        return any(not pod.ended for pod in self.pods) or self.wanted > 0


def revisions(objects: Objects) -> dict[str, Revision]:
    """Every revision by name, with its Deployment and pods."""
    by_revision: dict[str, list[Pod]] = {}
    for raw in objects.pods:
        revision = (raw["metadata"].get("labels") or {}).get(names.REVISION, "")
        by_revision.setdefault(revision, []).append(pod(raw))
    return {
        name: _revision(record, objects.deployments.get(name), by_revision.get(name, ()))
        for name, record in objects.revisions.items()
    }


def stable_of(revisions: Iterable[Revision]) -> Revision | None:
    """The revision with the highest promotion number; None before the first."""
    return max((arm for arm in revisions if arm.promoted), key=lambda arm: arm.promoted, default=None)


def timestamp(text: str | None) -> float | None:
    """Seconds since the epoch of an RFC 3339 time; None where there is none that can be read."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def rfc3339(now: float) -> str:
    """Seconds since the epoch as Kubernetes writes times."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(raw: Raw) -> Pod:
    """One pod as the rollout sees it."""
    metadata, status = raw["metadata"], raw.get("status") or {}
    conditions = {item["type"]: item for item in status.get("conditions") or ()}
    annotations = metadata.get("annotations") or {}
    ready = conditions.get("Ready", {}).get("status") == "True"
    ended = status.get("phase") in ("Failed", "Succeeded")
    vllm = _vllm(status)
    return Pod(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        ip=status.get("podIP", ""),
        node=(raw.get("spec") or {}).get("nodeName", ""),
        ready=ready,
        serving=(metadata.get("labels") or {}).get(names.SERVING) == "true",
        going="deletionTimestamp" in metadata or ended,
        ended=ended,
        scheduled=_scheduled(conditions.get("PodScheduled", {}), metadata),
        loaded=bool(vllm.get("started")) or bool(vllm.get("restartCount")) or ready,
        gone_by=timestamp(metadata.get("deletionTimestamp")),
        draining_since=timestamp(annotations.get(names.DRAINING_SINCE)),
        deletion_cost=_integer(annotations.get(names.DELETION_COST)),
        restarts=int(vllm.get("restartCount") or 0),
        trouble=_trouble(vllm),
        unschedulable=_unschedulable(conditions.get("PodScheduled", {})),
        started=timestamp(metadata.get("creationTimestamp")) or 0.0,
        raw=raw,
    )


def _revision(record: Raw, deployment: Raw | None, pods: Iterable[Pod]) -> Revision:
    notes = record["metadata"].get("annotations") or {}
    number, _, when = notes.get(names.PROMOTED, "").partition(" ")
    return Revision(
        name=record["metadata"]["name"],
        uid=record["metadata"].get("uid", ""),
        number=int(record.get("revision", 0)),
        promoted=int(number) if number.isdecimal() and number.isascii() and len(number) <= MAX_DIGITS else 0,
        promoted_at=timestamp(when),
        aborted=notes.get(names.ABORTED, ""),
        answered=_answered(notes.get(names.ACTIONS, "")),
        identity=notes.get(names.IDENTITY, ""),
        payload=record.get("data") or {},
        record=record,
        deployment=deployment,
        pods=tuple(sorted(pods, key=lambda item: (item.started, item.name))),
    )


def _integer(text: str | None) -> int:
    try:
        return int(text or 0)
    except ValueError:
        return 0


def _vllm(status: Raw) -> Raw:
    """The status of vLLM's own container: an injected sidecar's restarts are not the canary's fault."""
    containers: Sequence[Raw] = status.get("containerStatuses") or ()
    return next((item for item in containers if item.get("name", names.CONTAINER) == names.CONTAINER), {})


def _scheduled(condition: Raw, metadata: Raw) -> float | None:
    if condition.get("status") != "True":
        return None
    return timestamp(condition.get("lastTransitionTime")) or timestamp(metadata.get("creationTimestamp"))


def _answered(text: str) -> dict[str, str]:
    """What became of each action for this revision, by its id."""
    try:
        answers = parsed(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return {str(key): str(value) for key, value in answers.items()} if isinstance(answers, dict) else {}


def _trouble(container: Raw) -> str:
    waiting = (container.get("state") or {}).get("waiting") or {}
    if waiting.get("reason") in STUCK:
        return _with_last_exit(waiting["reason"], container)
    if exited := (container.get("state") or {}).get("terminated"):
        return f"{exited.get('reason', 'Error')}: exit code {exited.get('exitCode')}"
    return ""


def _with_last_exit(reason: str, container: Raw) -> str:
    last = (container.get("lastState") or {}).get("terminated") or {}
    if not last:
        return f"{reason}: {((container.get('state') or {}).get('waiting') or {}).get('message', '')}".rstrip(": ")
    return f"{reason}: {last.get('reason', 'Error')}, exit code {last.get('exitCode')}"


def _unschedulable(condition: Raw) -> str:
    if condition.get("status") != "False":
        return ""
    return str(condition.get("message") or condition.get("reason") or "not scheduled")
