"""What `promote`, `abort`, `pause` and `resume` write into a spec, and when they had better not. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from specfleet.api.conditions import Type, find
from specfleet.api.reasons import Reason
from specfleet.rollout.world import Raw

ActionType = Literal["Promote", "Abort"]


@dataclass(frozen=True, slots=True)
class Order:
    """A merge patch of the SDD (None: it is so already), what will happen, and what may come between."""

    patch: Mapping[str, Any] | None
    says: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is nothing to order, in one line."""

    says: str


# (where the mark is, its key, whose it is)
_GITOPS = (
    ("labels", "argocd.argoproj.io/instance", "Argo CD"),
    ("annotations", "argocd.argoproj.io/tracking-id", "Argo CD"),
    ("labels", "kustomize.toolkit.fluxcd.io/name", "Flux"),
    ("labels", "helm.toolkit.fluxcd.io/name", "Flux"),
)


def gitops(sdd: Raw) -> str:
    """Who puts the spec back to what Git says; empty if nobody is known to."""
    for where, key, owner in _GITOPS:
        if (sdd["metadata"].get(where) or {}).get(key):
            return owner
    return ""


def act(sdd: Raw, type: ActionType, new_id: str) -> Order | Refusal:
    """Promote or abort the canary of `sdd`, under an id that was not used before."""
    status, name = sdd.get("status") or {}, sdd["metadata"]["name"]
    canary = (status.get("canary") or {}).get("revision")
    if not canary:
        return Refusal(_no_canary(name, status, type.lower()))
    if invalid := _invalid(status):
        return Refusal(f"{name}'s newest spec is not in force, so an action in it would not be seen: {invalid}")
    if asked := _asked(sdd, type, canary):
        return Order(None, asked)
    action = {"type": type, "revision": canary, "id": new_id}
    says = _promotion(status, canary) if type == "Promote" else _abortion(status, canary)
    return Order({"spec": {"rollout": {"action": action}}}, says, tuple(_caveats(sdd, type, canary)))


def _no_canary(name: str, status: Raw, verb: str) -> str:
    reason, message = status.get("reason"), status.get("message", "")
    if not status:
        return f"{name} has no status yet: is the operator running?"
    if reason == Reason.CANARY_ABORTED:
        return f"{name} has no canary to {verb}, it was aborted already ({message}); edit the spec to try again"
    if not status.get("stable"):
        return f"{name} has no canary to {verb}: its first revision has not become stable yet ({reason}: {message})"
    return f"{name} has no canary to {verb}: it is {reason} ({message})"


def _invalid(status: Raw) -> str:
    valid = find(status.get("conditions") or (), Type.CONFIG_VALID) or {}
    return str(valid.get("message") or "ConfigInvalid") if valid.get("status") == "False" else ""


def _asked(sdd: Raw, type: ActionType, canary: str) -> str:
    """What to say where the same order stands in the spec already."""
    action = ((sdd.get("spec") or {}).get("rollout") or {}).get("action") or {}
    if (action.get("type"), action.get("revision")) != (type, canary):
        return ""
    handled = (sdd.get("status") or {}).get("lastHandledAction") or {}
    done = handled.get("id") == action.get("id") and handled.get("result") == "Honoured"
    state = "the operator is at it" if done else "the operator has not honoured it yet"
    return f"{type} of {canary} was asked for already (id {action.get('id')}); {state}"


def _promotion(status: Raw, canary: str) -> str:
    return (
        f"{canary} (now at {status.get('weight', '0%')}) goes to 100% as soon as its pods are ready, without the"
        " remaining steps and proof; guards and capacity still hold"
    )


def _abortion(status: Raw, canary: str) -> str:
    stable = (status.get("stable") or {}).get("revision", "stable")
    return (
        f"all requests go back to {stable}, then {canary}'s pods finish what they hold and go;"
        " it stays aborted until the spec changes"
    )


def _caveats(sdd: Raw, type: ActionType, canary: str) -> Iterator[str]:
    yield from _unseen(sdd, f"; the order counts only if {canary} is still the canary then")
    if type == "Promote" and (sdd.get("spec") or {}).get("paused"):
        yield f"spec.paused is true: nothing moves until `resume {sdd['metadata']['name']}`"
    if owner := gitops(sdd):
        yield f"managed by {owner}: Git may take spec.rollout.action away again; once honoured, that changes nothing"


def _unseen(sdd: Raw, so: str = "") -> Iterator[str]:
    seen, newest = (sdd.get("status") or {}).get("observedGeneration"), sdd["metadata"].get("generation")
    if seen is not None and newest is not None and seen < newest:
        yield f"the operator has not looked at the newest spec yet (generation {newest}, seen {seen}){so}"


def hold(sdd: Raw, paused: bool) -> Order:
    """Pause or resume `sdd`; twice is the same as once."""
    name, status = sdd["metadata"]["name"], sdd.get("status") or {}
    if bool((sdd.get("spec") or {}).get("paused")) == paused:
        return Order(None, f"{name} is {'paused' if paused else 'not paused'} already; nothing was written")
    return Order({"spec": {"paused": paused}}, _held(name, status, paused), tuple(_holding(sdd, status, paused)))


def _held(name: str, status: Raw, paused: bool) -> str:
    canary = (status.get("canary") or {}).get("revision")
    if not paused:
        return f"{canary} goes on from its step" if canary else f"{name}'s next canary will go its steps by itself"
    if canary:
        return f"{canary} stays at {status.get('weight', '0%')} until `resume {name}`; guards still act"
    return f"{name}'s next canary will get no traffic until `resume {name}`"


def _holding(sdd: Raw, status: Raw, paused: bool) -> Iterator[str]:
    if paused and status and not status.get("stable"):
        yield "the first revision has no steps to pause: it becomes stable all the same"
    if invalid := _invalid(status):
        yield f"the newest spec is not in force, so this has no effect before it is corrected: {invalid}"
    if owner := gitops(sdd):
        yield f"managed by {owner}: Git will put spec.paused back; set it there too"
