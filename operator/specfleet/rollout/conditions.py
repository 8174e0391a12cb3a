"""Which conditions an SDD has and why: what kstatus, Argo CD and people judge it by. Pure."""

from collections.abc import Mapping
from typing import Any

from specfleet.api.conditions import Status, Type, condition, find
from specfleet.api.reasons import Reason
from specfleet.api.validation import not_implemented
from specfleet.resources.revision import render
from specfleet.rollout.course import Course
from specfleet.rollout.note import Note
from specfleet.rollout.revision import first_difference
from specfleet.rollout.scene import Scene

QUIET = (Reason.STABLE, Reason.RETAINING_OLD, Reason.SCALED_TO_ZERO, Reason.CANARY_ABORTED)
STALLED = (
    Reason.CANARY_ABORTED,
    Reason.NAME_TAKEN,
    Reason.GATEWAY_NOT_FOUND,
    Reason.ROUTE_CONFLICT,
    Reason.ROUTE_CONTESTED,
    Reason.ROUTE_NOT_FOUND,
    Reason.ROUTE_UNUSABLE,
)


def told(scene: Scene, course: Course, problems: tuple[str, ...]) -> Note:
    """What the fleet waits for: what hinders a pass altogether, else what the course says."""
    return _hindered(scene, problems) or _awake(course.hold, scene.sdd.get("status") or {})


def conditions(
    scene: Scene, hold: Note, problems: tuple[str, ...], findings: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """Every condition, as `hold` has it; `problems` say why the newest spec is not in force, `findings` what in the
    one that is may spoil a rollout."""
    generation = int(scene.sdd["metadata"].get("generation", 0))

    def say(type: Type, value: bool, reason: Reason, message: str) -> dict[str, Any]:
        state: Status = "True" if value else "False"
        return condition(type, state, reason, message, generation)

    serving = any(item.ready for item in scene.revisions.values() if item.name in scene.carriers and item.promoted)
    ready = not scene.spec.replicas or (scene.roles.stable is not None and (serving or _canary_carries(scene)))
    stalled = hold.reason in STALLED or bool(problems)
    why = Note(Reason.CONFIG_INVALID, "; ".join(problems)) if problems and hold.reason not in STALLED else hold
    said = [
        say(Type.READY, ready, hold.reason, hold.message),
        say(Type.RECONCILING, not stalled and hold.reason not in QUIET, hold.reason, hold.message),
        say(Type.STALLED, stalled, why.reason, why.message),
        say(Type.CONFIG_VALID, not problems, Reason.CONFIG_ACCEPTED, "the spec is in force")
        if not problems
        else say(Type.CONFIG_VALID, False, Reason.CONFIG_INVALID, "; ".join(problems)),
    ]
    if missing := not_implemented(scene.spec):
        text = f"accepted, but without effect in this version: {', '.join(missing)}"
        said.append(say(Type.NOT_IMPLEMENTED, True, Reason.NOT_IMPLEMENTED, text))
    if findings:
        said.append(say(Type.HAS_FINDINGS, True, Reason.FINDINGS, "; ".join(findings)))
    if outdated := _outdated(scene):
        text = f"a restart would change the pods: {outdated}"
        said.append(say(Type.TEMPLATE_OUTDATED, True, Reason.TEMPLATE_CHANGED, text))
    return said


def refused(text: str, generation: int) -> list[dict[str, Any]]:
    """The conditions of an SDD that never had a valid spec; `text` says what is wrong with it."""
    return [
        condition(Type.READY, "False", Reason.CONFIG_INVALID, text, generation),
        condition(Type.STALLED, "True", Reason.CONFIG_INVALID, text, generation),
        condition(Type.CONFIG_VALID, "False", Reason.CONFIG_INVALID, text, generation),
    ]


def _outdated(scene: Scene) -> str:
    """How this operator would render stable's pods differently from what is frozen; empty where it would not."""
    stable = scene.roles.stable
    if stable is None or stable is not scene.roles.target:
        return ""
    return first_difference(stable.payload.get("template"), render(scene.name, stable.name, scene.spec)["template"])


def _canary_carries(scene: Scene) -> bool:
    canary = scene.roles.canary
    return canary is not None and canary.ready > 0 and canary.name in scene.carriers


def _hindered(scene: Scene, problems: tuple[str, ...]) -> Note | None:
    if problems:
        return Note(Reason.CONFIG_INVALID, f"the last valid spec stays in force: {'; '.join(problems)}")
    if scene.seen.refused:
        return Note(Reason.API_ERROR, scene.seen.refused)
    if not scene.seen.taken:
        return None
    return Note(Reason.NAME_TAKEN, f"{', '.join(scene.seen.taken)}: exists and is not ours; it is left alone")


def _awake(hold: Note, old: Mapping[str, Any]) -> Note:
    """After a rest at zero replicas, pods that have yet to come are no outage, until the first was ready."""
    ready = find(old.get("conditions") or (), Type.READY) or {}
    waking = ready.get("status") == "False" and ready.get("reason") == Reason.WAITING_FOR_PODS
    if hold.reason is Reason.STABLE_UNAVAILABLE and (waking or ready.get("reason") == Reason.SCALED_TO_ZERO):
        return Note(Reason.WAITING_FOR_PODS, hold.message)
    return hold
