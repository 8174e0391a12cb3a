"""What a pass tells the user: the status of the SDD and its conditions. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from specfleet.api import names
from specfleet.api.conditions import Status, Type, condition, find, merge
from specfleet.api.reasons import Reason
from specfleet.api.validation import findings, not_implemented
from specfleet.judgement.verdict import Metric
from specfleet.resources.revision import render
from specfleet.rollout.comparison import left_out
from specfleet.rollout.course import Course
from specfleet.rollout.facts import steps_of
from specfleet.rollout.figures import fitting, measured, per_token, resolved
from specfleet.rollout.judged import metric, self_check
from specfleet.rollout.margins import planned, remarks
from specfleet.rollout.note import Note
from specfleet.rollout.orders import ignored
from specfleet.rollout.revision import first_difference
from specfleet.rollout.routefindings import route_findings
from specfleet.rollout.scene import ArmSeen, Scene
from specfleet.rollout.waiting import reachable_percent
from specfleet.rollout.world import Raw, Revision, rfc3339

QUIET = (Reason.STABLE, Reason.RETAINING_OLD, Reason.SCALED_TO_ZERO, Reason.CANARY_ABORTED)
MAX_SHORT = 253
STALLED = (
    Reason.CANARY_ABORTED,
    Reason.NAME_TAKEN,
    Reason.GATEWAY_NOT_FOUND,
    Reason.ROUTE_CONFLICT,
    Reason.ROUTE_CONTESTED,
    Reason.ROUTE_NOT_FOUND,
    Reason.ROUTE_UNUSABLE,
)


def status(scene: Scene, course: Course, problems: tuple[str, ...], time: str) -> dict[str, Any]:
    """The whole status, camelCase, without anything unknown. `problems` say why the newest spec is not in force."""
    old = scene.sdd.get("status") or {}
    hold = _hindered(scene, problems) or _awake(course.hold, old)
    stable, canary = scene.roles.stable, scene.roles.canary
    judged, least = course.verdict.metrics if course.verdict else (), resolved(scene, course)
    known: dict[str, Any] = {
        "observedGeneration": _generation(scene.sdd),
        "conditions": merge(old.get("conditions") or (), _conditions(scene, hold, problems), time),
        "reason": str(hold.reason),
        "message": _clip(hold.message),
        "replicas": min(scene.spec.replicas, sum(item.ready for item in scene.revisions.values())),
        "selector": f"{names.DEPLOYMENT}={scene.name}",
        "stable": _arm(scene, stable, scene.seen.stable, old.get("stable") or {}),
        "canary": _arm(scene, canary, scene.seen.canary, old.get("canary") or {}),
        "weight": _weight(scene) if canary else None,
        "step": _step(scene, course) if canary else None,
        "proposalLength": _proposal_length(stable or scene.roles.target, canary),
        "model": _payload(stable or scene.roles.target).get("model"),
        "ready": f"{sum(item.ready for item in scene.revisions.values())}/{scene.spec.replicas}",
        "gpu": "/".join(scene.spec.accelerator.products)[:MAX_SHORT] or None,
        "routing": list(_routing(scene)) or None,
        "url": f"http://{scene.name}.{scene.sdd['metadata']['namespace']}:{names.PORT}",
        "metrics": [metric(item, scene, least.get(item.metric)) for item in judged] or None,
        "dropped": left_out(scene.seen.dropped) or None if course.verdict else None,
        "selfCheck": self_check(scene.seen.check, old, begins=canary is not None and not old.get("canary")),
        "decisions": [_decision(item) for item in reversed(course.memory.decisions)] or None,
        "lastHandledAction": _action(scene, course),
        "findings": list(dict.fromkeys(_clip(text) for text in _findings(scene, least)))[:32] or None,
        **measured(scene, old),
    }
    return {key: value for key, value in known.items() if value is not None}


def invalid(sdd: Raw, problems: tuple[str, ...], time: str) -> dict[str, Any]:
    """The status of an SDD that never had a valid spec."""
    old, generation = sdd.get("status") or {}, _generation(sdd)
    text = "; ".join(problems)
    new = [
        condition(Type.READY, "False", Reason.CONFIG_INVALID, text, generation),
        condition(Type.STALLED, "True", Reason.CONFIG_INVALID, text, generation),
        condition(Type.CONFIG_VALID, "False", Reason.CONFIG_INVALID, text, generation),
    ]
    conditions = merge(old.get("conditions") or (), new, time)
    reason = str(Reason.CONFIG_INVALID)
    return {"observedGeneration": generation, "conditions": conditions, "reason": reason, "message": _clip(text)}


def matters(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a status says something new: replicas too, since a scaler reads them. Other counts, wording and measured
    figures move at every look and can wait."""
    return _news(before) != _news(after)


def _news(status: Mapping[str, Any]) -> list[Any]:
    conditions = [[item.get(key) for key in ("type", "status", "reason")] for item in status.get("conditions", ())]
    revisions = [(status.get(arm) or {}).get("revision") for arm in ("stable", "canary")]
    step = (status.get("step") or {}).get("index")
    rest = [status.get(key) for key in ("observedGeneration", "replicas", "decisions", "lastHandledAction", "findings")]
    return [conditions, revisions, step, *rest]


def _conditions(scene: Scene, hold: Note, problems: tuple[str, ...]) -> list[dict[str, Any]]:
    generation = _generation(scene.sdd)

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
    if outdated := _outdated(scene):
        text = f"a restart would change the pods: {outdated}"
        said.append(say(Type.TEMPLATE_OUTDATED, True, Reason.TEMPLATE_CHANGED, text))
    return said


def _findings(scene: Scene, least: Mapping[Metric, float]) -> tuple[str, ...]:
    objects, route = scene.objects, scene.routing.route
    around = route_findings(scene.sdd, scene.spec.traffic, route, objects.gateways, objects.neighbours)
    margins = remarks(scene.spec, least, planned(scene.memory.rollout))
    return (*findings(scene.spec), *margins, *around)


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


def _generation(sdd: Raw) -> int:
    return int(sdd["metadata"].get("generation", 0))


def _payload(revision: Revision | None) -> Mapping[str, Any]:
    return revision.payload if revision else {}


def _arm(scene: Scene, revision: Revision | None, seen: ArmSeen, old: Raw) -> dict[str, Any] | None:
    if revision is None:
        return None
    known = {
        "revision": revision.name,
        "method": str(revision.payload.get("method", "none")),
        "numSpeculativeTokens": str(revision.payload.get("numSpeculativeTokens", "")),
        "replicas": revision.wanted,
        "ready": revision.ready,
        "timePerOutputToken": per_token(scene, revision, seen, old),
        "kvCache": fitting(scene, revision),
    }
    return {key: value for key, value in known.items() if value is not None}


def _weight(scene: Scene) -> str:
    canary = scene.roles.canary
    if canary and (percent := scene.routing.percent(canary.name)) is not None:
        return f"{percent}%"
    carrying = sum(item.ready for item in scene.revisions.values() if item.name in scene.carriers)
    if canary is None or canary.name not in scene.carriers or not carrying:
        return "0%"
    return f"{round(100 * canary.ready / carrying)}%"


def _routing(scene: Scene) -> Iterator[str]:
    """Which rule of the route sends what where."""
    routing = scene.routing
    if routing.route is None:
        return
    name = f"HTTPRoute {routing.route['metadata']['name']}"
    cohort = next((item for item in scene.spec.traffic.cohorts if item.name == routing.cohort), None)
    if cohort and scene.roles.canary:
        yield f"{name}: {cohort.header.name}: {cohort.header.value} -> {scene.roles.canary.name}"
    total = max(1, sum(backend.weight for backend in routing.backends))
    shares = (f"{backend.name} {round(100 * backend.weight / total)}%" for backend in routing.backends)
    yield f"{name}: {', '.join(shares)}"


def _step(scene: Scene, course: Course) -> dict[str, Any] | None:
    if course.turn is None:
        return None
    steps, promoting = steps_of(scene.spec), bool(course.turn.rollout.promoting)
    index = min(course.turn.rollout.step, len(steps) - 1)
    step = steps[index]
    reachable = reachable_percent(step.weight, course.turn.shape, scene.routing.gateway)
    short = reachable != step.weight and not step.cohort and not promoting
    known = {
        "index": index + 1,
        "of": len(steps),
        "askedWeight": "100%" if promoting else str(step),
        "reachable": f"{reachable}%" if short else None,
    }
    return {key: value for key, value in known.items() if value is not None}


def _proposal_length(stable: Revision | None, canary: Revision | None) -> str | None:
    now = _length(stable)
    if canary is None or _length(canary) == now:
        return now
    return f"{now}→{_length(canary)}"


def _length(revision: Revision | None) -> str | None:
    if revision is None:
        return None
    length = revision.payload.get("numSpeculativeTokens")
    return "auto" if length is None else str(length) if length else "off"


def _decision(item: Any) -> dict[str, str]:
    return {
        "time": rfc3339(item.time),
        "reason": str(item.reason),
        "message": _clip(item.message),
        "revision": item.revision,
    }


def _action(scene: Scene, course: Course) -> dict[str, str] | None:
    action = scene.spec.rollout.action
    if action is None:
        return None
    meant = scene.revisions.get(action.revision)
    answers = dict(meant.answered) if meant else {}
    for mark in course.marks:
        answers |= json.loads(mark.notes.get(names.ACTIONS) or "{}")
    return {"id": action.id, "type": action.type, "result": _clip(answers.get(action.id) or ignored(scene, action))}


def _clip(text: str) -> str:
    return text if len(text) <= 1024 else f"{text[:1023]}…"
