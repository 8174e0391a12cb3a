"""What there is to show of one SpecDecodeDeployment: its revisions as branches with their pods, and notes. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specfleet.api import names
from specfleet.api.conditions import Type, find
from specfleet.api.reasons import Reason, named
from specfleet.cli.words import count
from specfleet.rollout.world import Objects, Pod, Raw, Revision, revisions, stable_of


@dataclass(frozen=True, slots=True)
class PodLine:
    """One pod. `state` is one word, `detail` what is the matter with it; times are seconds since the epoch."""

    name: str
    node: str
    gpus: str
    state: str
    detail: str
    restarts: int
    started: float
    draining_since: float | None


@dataclass(frozen=True, slots=True)
class Branch:
    """One revision with its pods. `role` is stable, canary, first, aborted, retained or leaving."""

    name: str
    role: str
    speculation: str
    ready: int
    wanted: int
    note: str
    pods: tuple[PodLine, ...]
    guards: str = ""


@dataclass(frozen=True, slots=True)
class Fleet:
    """One SDD. `ready` is its Ready condition (True, False, Unknown), `earlier` are revisions without pods."""

    name: str
    namespace: str
    ready: str
    stalled: bool
    reason: str
    message: str
    status: Raw
    branches: tuple[Branch, ...] = ()
    earlier: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def todo(self) -> str:
        """What its reader may do about it; empty where nothing is wrong."""
        reason = named(self.reason)
        return reason.todo if reason and reason.kind in ("wait", "problem") else ""


def fleet(sdd: Raw, owned: Iterable[Raw] = (), unread: str = "") -> Fleet:
    """One SDD with the objects that carry its label; `unread` says why some of them could not be read."""
    status, metadata = sdd.get("status") or {}, sdd["metadata"]
    conditions = status.get("conditions") or ()
    reason = str(status.get("reason", ""))
    known = known_revisions(owned)
    branches = tuple(_branches(known, status))
    shown = {branch.name for branch in branches}
    return Fleet(
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        ready=(find(conditions, Type.READY) or {}).get("status", "Unknown"),
        stalled=(find(conditions, Type.STALLED) or {}).get("status") == "True",
        reason=reason,
        message=str(status.get("message", "")) or ("" if status else "no status yet: is the operator running?"),
        status=status,
        branches=branches,
        earlier=tuple(_earlier(item) for item in _newest_first(known.values()) if item.name not in shown),
        notes=(*_notes(sdd, conditions), *((f"not everything could be read: {unread}",) if unread else ())),
    )


def known_revisions(owned: Iterable[Raw]) -> dict[str, Revision]:
    """The revisions by name; one whose ControllerRevision cannot be read is known by its pods and Deployment alone."""
    kinds: dict[str, dict[str, Raw]] = {"ControllerRevision": {}, "Deployment": {}, "Pod": {}}
    seen: dict[str, Raw] = {}
    for item in owned:
        kinds.get(item.get("kind", ""), {})[item["metadata"]["name"]] = item
        if revision := (item["metadata"].get("labels") or {}).get(names.REVISION):
            seen[revision] = {"metadata": {"name": revision}}
    records = {**seen, **kinds["ControllerRevision"]}
    return revisions(Objects(records, kinds["Deployment"], pods=tuple(kinds["Pod"].values())))


def _newest_first(known: Iterable[Revision]) -> list[Revision]:
    return sorted(known, key=lambda item: (-item.number, item.name))


def _branches(known: Mapping[str, Revision], status: Raw) -> Iterator[Branch]:
    """Stable first, then the canary, then what else has pods, and the aborted one that keeps the fleet waiting."""
    stable, canary = status.get("stable") or {}, status.get("canary") or {}
    best = stable_of(known.values())
    leaders = {stable.get("revision") or (best.name if best else ""): stable, canary.get("revision", ""): canary}
    for name, arm in leaders.items():
        if name:
            role = "canary" if arm is canary and canary else "stable"
            yield _leader(name, role, arm, known.get(name))
    latched = status.get("reason") == Reason.CANARY_ABORTED
    for revision in _newest_first(known.values()):
        if revision.name in leaders:
            continue
        blocking = latched and bool(revision.aborted)
        latched = latched and not blocking
        if revision.alive or blocking:
            yield _other(revision, bool(leaders.keys() - {""}), status)


def _leader(name: str, role: str, arm: Raw, revision: Revision | None) -> Branch:
    """Live objects where they could be read, else what the operator says in status."""
    wanted, ready = int(arm.get("replicas", 0)), int(arm.get("ready", 0))
    guards = _guards(arm)
    if revision is None:
        return Branch(name, role, speculation(arm), ready, wanted, "", (), guards)
    payload = revision.payload or arm
    if revision.deployment is not None:
        wanted = revision.wanted
    return Branch(name, role, speculation(payload), revision.ready, wanted, "", _pods(revision), guards)


def _guards(arm: Raw) -> str:
    """Each guard with its mark, and what is the matter with one that fails."""
    marks = {"passing": "✔", "failing": "✖"}
    said = (
        f"{marks.get(str(item.get('state')), '◌')} {item.get('name')}"
        + (f": {item.get('message')}" if item.get("state") == "failing" else "")
        for item in arm.get("guards") or ()
    )
    return "  ".join(said)


def _other(revision: Revision, led: bool, status: Raw) -> Branch:
    note = revision.aborted if revision.aborted != status.get("message") else ""
    if revision.aborted:
        role = "aborted"
    elif not led:
        role = "first"
    else:
        role = "retained" if revision.promoted and status.get("reason") == Reason.RETAINING_OLD else "leaving"
    payload = speculation(revision.payload)
    return Branch(revision.name, role, payload, revision.ready, revision.wanted, note, _pods(revision))


def speculation(arm: Raw) -> str:
    """`eagle3 k=3`, `eagle3 k up to 5`, `no speculation`: from a revision's payload or from its part of status."""
    method, length = str(arm.get("method") or ""), arm.get("numSpeculativeTokens")
    if method == "none":
        return "no speculation"
    if not method or length in (None, ""):
        return method
    return f"{method} k up to {length}" if arm.get("schedule") else f"{method} k={length}"


def _earlier(revision: Revision) -> str:
    return f"{revision.name} (aborted)" if revision.aborted else revision.name


def _pods(revision: Revision) -> tuple[PodLine, ...]:
    return tuple(_pod(pod) for pod in revision.pods)


def _pod(pod: Pod) -> PodLine:
    state, detail = _state(pod)
    return PodLine(pod.name, pod.node, _gpus(pod.raw), state, detail, pod.restarts, pod.started, pod.draining_since)


def _state(pod: Pod) -> tuple[str, str]:
    trouble, _, detail = pod.trouble.partition(": ")
    if pod.going:
        phase = (pod.raw.get("status") or {}).get("phase", "")
        return (phase if phase in ("Failed", "Succeeded") else "Terminating"), detail
    if trouble:
        return trouble, detail
    if pod.unschedulable or not pod.node:
        return "Pending", pod.unschedulable
    if not pod.serving:
        return "Draining", ""
    return ("Ready", "") if pod.ready else (_waiting(pod.raw) or "Starting", "")


def _waiting(raw: Raw) -> str:
    for item in (raw.get("status") or {}).get("containerStatuses") or ():
        if reason := ((item.get("state") or {}).get("waiting") or {}).get("reason"):
            return str(reason)
    return ""


def _gpus(raw: Raw) -> str:
    """What the pod asks of AMD's devices: `4 GPUs`, `2 cpx_nps4`; empty if nothing."""
    asked: dict[str, int] = {}
    for container in (raw.get("spec") or {}).get("containers") or ():
        resources = container.get("resources") or {}
        for name, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            if name.startswith("amd.com/") and str(amount).isdigit():
                asked[name] = asked.get(name, 0) + int(amount)
    words = (
        count(number, "GPU") if name == "amd.com/gpu" else f"{number} {name.removeprefix('amd.com/')}"
        for name, number in asked.items()
    )
    return " + ".join(words)


def _notes(sdd: Raw, conditions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What a reader should know beside the state: a spec that is not in force, fields without effect, advice."""
    status, metadata = sdd.get("status") or {}, sdd["metadata"]
    if "deletionTimestamp" in metadata:
        yield "it is being deleted"
    seen, newest = status.get("observedGeneration"), metadata.get("generation")
    if seen is not None and newest is not None and seen < newest:
        yield f"the operator has not looked at the newest spec yet (generation {newest}, seen {seen})"
    valid = find(conditions, Type.CONFIG_VALID) or {}
    if valid.get("status") == "False" and valid.get("message") != status.get("message"):
        yield f"the newest spec is not in force: {valid.get('message', '')}"
    for type in (Type.NOT_IMPLEMENTED, Type.TEMPLATE_OUTDATED):
        if (item := find(conditions, type) or {}).get("status") == "True":
            yield f"{type}: {item.get('message', '')}"
    action = status.get("lastHandledAction") or {}
    if action and action.get("result") != "Honoured":
        yield f"action {action.get('type')} {action.get('id')}: {action.get('result')}"
    if (sdd.get("spec") or {}).get("paused") and not status.get("canary"):
        yield "spec.paused is true: the next canary gets no traffic until it is resumed"
    yield from status.get("findings") or ()


def mark(shown: Fleet) -> tuple[object, ...]:
    """Equal for two looks between which nothing happened that a reader of a log wants to know: ages do not count, nor
    does a count-down in the message."""
    status = {key: value for key, value in shown.status.items() if key not in ("message", "conditions")}
    return (shown.ready, shown.stalled, status, shown.branches, shown.earlier, shown.notes)
