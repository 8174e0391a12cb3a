"""What the objects say at one moment about each application: its pods, whom its Service offers, how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Item = dict[str, Any]
Objects = Mapping[str, Mapping[str, Item]]  # by kind and name
APPS = ("specfleet.dev/deployment", "fleet", "app")  # labels that say whose a pod is: ours, Flagger's, Argo's
REVISIONS = ("specfleet.dev/revision", "rollouts-pod-template-hash")


@dataclass(frozen=True, slots=True)
class State:
    """How far a rollout is. stable, newest: revisions, empty before there is one. aborted: the newest is latched out.

    rest: nothing is under way, with the newest spec. said: in the controller's own words.
    """

    stable: str = ""
    newest: str = ""
    aborted: bool = False
    rest: bool = False
    said: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """One moment (Unix epoch), by application: pods that are neither Succeeded nor Failed, terminating ones among them;
    ready endpoints of the Service of that name by revision; how far it is; the part of new requests that the
    HTTPRoute of that name gives to a canary."""

    time: float
    pods: dict[str, int] = field(default_factory=dict)
    serving: dict[str, dict[str, int]] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    routed: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def read(raw: Mapping[str, Any]) -> Look:
        """From JSON."""
        states = {name: State(**state) for name, state in raw["states"].items()}
        return Look(raw["time"], raw["pods"], raw["serving"], states, raw["routed"])


def label(item: Item, names: tuple[str, ...]) -> str:
    """The first of these labels that an object has, or empty."""
    labels = item["metadata"].get("labels", {})
    return next((str(labels[name]) for name in names if name in labels), "")


def look(objects: Objects, now: float) -> Look:
    """What these objects say."""
    alive: dict[str, int] = {}
    for pod in objects["pods"].values():
        if pod["status"].get("phase") in ("Pending", "Running"):
            alive[label(pod, APPS)] = alive.get(label(pod, APPS), 0) + 1
    fleets = {name: _ours(item, objects["revisions"]) for name, item in objects["fleets"].items()}
    rollouts = {name: _argos(item) for name, item in objects["rollouts"].items()}
    canaries = {name: _flaggers(item) for name, item in objects["canaries"].items()}
    routed = {name: _routed(item) for name, item in objects["routes"].items()}
    return Look(now, alive, _serving(objects), fleets | rollouts | canaries, routed)


def _routed(route: Item) -> float:
    """Stable's Service is called as the route, or -stable with Argo, or -primary with Flagger."""
    name = route["metadata"]["name"]
    references = route["spec"]["rules"][-1].get("backendRefs") or ()
    weights = {str(one["name"]): int(one.get("weight", 1)) for one in references}
    stable = sum(weights.get(name + ending, 0) for ending in ("", "-stable", "-primary"))
    return 1 - stable / sum(weights.values()) if any(weights.values()) else 0.0


def _serving(objects: Objects) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for item in objects["slices"].values():
        revisions = found.setdefault(label(item, ("kubernetes.io/service-name",)), {})
        for endpoint in item.get("endpoints") or ():
            if endpoint["conditions"].get("ready") and (reference := endpoint.get("targetRef")):
                revision = label(objects["pods"].get(reference["name"], {"metadata": {}}), REVISIONS)
                revisions[revision] = revisions.get(revision, 0) + 1
    return found


def _ours(fleet: Item, revisions: Mapping[str, Item]) -> State:
    """Which revision is stable and which is latched out stands on the ControllerRevisions."""
    own = [item for item in revisions.values() if label(item, APPS) == fleet["metadata"]["name"]]
    notes = {item["metadata"]["name"]: item["metadata"].get("annotations", {}) for item in own}
    order = {name: int(note["specfleet.dev/promoted"].split()[0]) for name, note in notes.items() if _promoted(note)}
    newest = max(own, key=lambda item: int(item["revision"]), default=None)
    name = str(newest["metadata"]["name"]) if newest else ""
    status = fleet.get("status", {})
    fresh = status.get("observedGeneration") == fleet["metadata"]["generation"]
    return State(
        stable=max(order, key=lambda one: order[one], default=""),
        newest=name,
        aborted=bool(notes.get(name, {}).get("specfleet.dev/aborted")),
        rest=fresh and status.get("reason") in ("Stable", "RetainingOld"),
        said=f"{status.get('reason', '...')} {status.get('message', '')}".strip(),
    )


def _promoted(note: Mapping[str, str]) -> bool:
    return bool(note.get("specfleet.dev/promoted"))


def _argos(rollout: Item) -> State:
    """A new spec is only taken into account once the controller has seen it."""
    status = rollout.get("status", {})
    if str(status.get("observedGeneration")) != str(rollout["metadata"]["generation"]):
        return State(stable=status.get("stableRS", ""), said="...")
    stable, newest = status.get("stableRS", ""), status.get("currentPodHash", "")
    step, phase, message = status.get("currentStepIndex", "-"), status.get("phase", "..."), status.get("message", "")
    return State(
        stable=stable,
        newest=newest,
        aborted=bool(status.get("abort")),
        rest=phase == "Healthy" and bool(stable) and stable == newest,
        said=f"{phase}, step {step} {message}".strip(),
    )


def _flaggers(canary: Item) -> State:
    """Revisions are its hashes of the pod template. It sees a change at its next tick, and is at rest until then."""
    status = canary.get("status", {})
    phase = status.get("phase", "...")
    stable, newest = status.get("lastPromotedSpec", ""), status.get("lastAppliedSpec", "")
    return State(
        stable=stable,
        newest=newest,
        aborted=phase == "Failed",
        rest=phase in ("Initialized", "Succeeded") and stable == newest,
        said=f"{phase}, weight {status.get('canaryWeight', '-')}, {status.get('failedChecks', '-')} failed checks",
    )
