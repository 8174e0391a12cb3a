"""What the orders, from `promote` to `resume`, write into a spec, and when they had better not. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from specfleet.api.conditions import Type, find
from specfleet.api.reasons import Reason
from specfleet.cli.fleet import known_revisions
from specfleet.rollout.revision import identity
from specfleet.rollout.world import Raw, Revision, stable_of

ActionType = Literal["Promote", "Abort", "Retry", "Undo"]


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


def act(sdd: Raw, type: Literal["Promote", "Abort"], new_id: str) -> Order | Refusal:
    """Promote or abort the canary of `sdd`, under an id that was not used before."""
    status, name = sdd.get("status") or {}, sdd["metadata"]["name"]
    canary = (status.get("canary") or {}).get("revision")
    if not canary:
        return Refusal(_no_canary(name, status, type.lower()))
    if invalid := _invalid(status):
        return Refusal(f"{name}'s newest spec is not in force, so an action in it would not be seen: {invalid}")
    says = _promotion(status, canary) if type == "Promote" else _abortion(status, canary)
    return _order(sdd, type, canary, new_id, says)


def retry(sdd: Raw, owned: Iterable[Raw], unread: str, new_id: str) -> Order | Refusal:
    """Lift the abort of the current spec's revision; `unread` says why not all of `owned` could be read."""
    status, name = sdd.get("status") or {}, sdd["metadata"]["name"]
    if refusal := _blind(sdd, unread):
        return refusal
    known = known_revisions(owned).values()
    current = next((item for item in known if item.identity == identity(sdd.get("spec") or {})), None)
    if current is None or not current.aborted or current is stable_of(known):
        return Refusal(f"{name} has nothing to retry: no abort holds its spec, it is {_state(status)}")
    says = f"{current.name} starts again through all its steps; it was aborted before ({current.aborted})"
    return _order(sdd, "Retry", current.name, new_id, says, again=True)


def undo(sdd: Raw, owned: Iterable[Raw], unread: str, new_id: str) -> Order | Refusal:
    """Go back from stable to the revision that was promoted before it."""
    status, name = sdd.get("status") or {}, sdd["metadata"]["name"]
    if refusal := _blind(sdd, unread):
        return refusal
    known = known_revisions(owned).values()
    stable = stable_of(known)
    if stable is None:
        return Refusal(f"{name} has nothing to undo: no revision of it was ever promoted, it is {_state(status)}")
    if canary := (status.get("canary") or {}).get("revision"):
        asked = _asked(sdd, "Undo", stable.name)
        busy = Refusal(f"{name} has a canary on its way ({canary}): `abort {name}` ends it, stable stays")
        return Order(None, asked) if asked else busy
    before = _before(known, stable)
    if before is None:
        gone = "no earlier promoted revision is kept; apply the earlier spec instead"
        return Refusal(f"UndoUnavailable: {name} cannot go back from {stable.name}: {gone}")
    says = f"{stable.name} is rejected until the spec changes; {before.name} (promotion {before.promoted}) returns"
    return _order(sdd, "Undo", stable.name, new_id, f"{says} as soon as its pods are ready", again=True)


def _before(known: Iterable[Revision], stable: Revision) -> Revision | None:
    """The newest promoted revision but stable that was not rejected since."""
    return stable_of(item for item in known if item is not stable and not item.aborted)


def _blind(sdd: Raw, unread: str) -> Refusal | None:
    """Why nothing can be decided: no status, a spec that is not in force, objects that may not be read."""
    status, name = sdd.get("status") or {}, sdd["metadata"]["name"]
    if not status:
        return Refusal(f"{name} has no status yet: is the operator running?")
    if invalid := _invalid(status):
        return Refusal(f"{name}'s newest spec is not in force, so an action in it would not be seen: {invalid}")
    return Refusal(f"{name}'s revisions could not be read: {unread}") if unread else None


def _order(sdd: Raw, type: ActionType, revision: str, new_id: str, says: str, again: bool = False) -> Order:
    """`again`: the same order may have been honoured before and be needed once more."""
    if (asked := _asked(sdd, type, revision)) and not (again and _honoured(sdd)):
        return Order(None, asked)
    action = {"type": type, "revision": revision, "id": new_id}
    return Order({"spec": {"rollout": {"action": action}}}, says, tuple(_caveats(sdd, type, revision)))


def _state(status: Raw) -> str:
    return f"{status.get('reason')} ({status.get('message', '')})"


def _no_canary(name: str, status: Raw, verb: str) -> str:
    reason, message = status.get("reason"), status.get("message", "")
    if not status:
        return f"{name} has no status yet: is the operator running?"
    if reason == Reason.CANARY_ABORTED:
        return f"{name} has no canary to {verb}, it was aborted already ({message}); `retry {name}`, or edit the spec"
    if not status.get("stable"):
        return f"{name} has no canary to {verb}: its first revision has not become stable yet ({reason}: {message})"
    return f"{name} has no canary to {verb}: it is {_state(status)}"


def _invalid(status: Raw) -> str:
    valid = find(status.get("conditions") or (), Type.CONFIG_VALID) or {}
    return str(valid.get("message") or "ConfigInvalid") if valid.get("status") == "False" else ""


def _asked(sdd: Raw, type: ActionType, revision: str) -> str:
    """What to say where the same order stands in the spec already."""
    action = ((sdd.get("spec") or {}).get("rollout") or {}).get("action") or {}
    if (action.get("type"), action.get("revision")) != (type, revision):
        return ""
    state = "the operator is at it" if _honoured(sdd) else "the operator has not honoured it yet"
    return f"{type} of {revision} was asked for already (id {action.get('id')}); {state}"


def _honoured(sdd: Raw) -> bool:
    """Whether the operator has honoured the order that stands in the spec."""
    action = ((sdd.get("spec") or {}).get("rollout") or {}).get("action") or {}
    handled = (sdd.get("status") or {}).get("lastHandledAction") or {}
    return handled.get("id") == action.get("id") and handled.get("result") == "Honoured"


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


# What the named revision must still be when the operator comes to the order.
_STILL = {"Promote": "the canary", "Abort": "the canary", "Retry": "the spec's revision", "Undo": "stable"}


def _caveats(sdd: Raw, type: ActionType, revision: str) -> Iterator[str]:
    yield from _unseen(sdd, f"; the order counts only if {revision} is still {_STILL[type]} then")
    if type in ("Promote", "Retry") and (sdd.get("spec") or {}).get("paused"):
        yield f"spec.paused is true: nothing moves until `resume {sdd['metadata']['name']}`"
    if owner := gitops(sdd):
        yield f"managed by {owner}: Git may take spec.rollout.action away again; once honoured, that changes nothing"
    if type == "Undo" and owner:
        yield "the spec in Git is still the undone one: set the earlier one there"


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
