"""What a pass tells the user: the status of the SDD and its conditions. Pure."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from specfleet.api import names
from specfleet.api.conditions import Status, Type, condition, find, merge
from specfleet.api.reasons import Reason
from specfleet.api.validation import findings, not_implemented
from specfleet.judgement.verdict import MetricVerdict
from specfleet.resources.revision import render
from specfleet.rollout import arms
from specfleet.rollout.arms import clip
from specfleet.rollout.course import Course
from specfleet.rollout.facts import steps_of
from specfleet.rollout.margins import remarks
from specfleet.rollout.note import Note
from specfleet.rollout.orders import ignored
from specfleet.rollout.revision import first_difference
from specfleet.rollout.routefindings import route_findings
from specfleet.rollout.scene import Scene
from specfleet.rollout.waiting import reachable_percent
from specfleet.rollout.world import Raw, Revision, rfc3339
from specfleet.telemetry.derived import acceptance_rate, step_time, tokens_per_step

QUIET = (Reason.STABLE, Reason.RETAINING_OLD, Reason.SCALED_TO_ZERO, Reason.CANARY_ABORTED)
MAX_SHORT = 253
NOISE = 5.0  # standard errors by which a printed figure must move: 100 quiet fleets write it a few times an hour
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
    known: dict[str, Any] = {
        "observedGeneration": _generation(scene.sdd),
        "conditions": merge(old.get("conditions") or (), _conditions(scene, hold, problems), time),
        "reason": str(hold.reason),
        "message": clip(hold.message),
        "replicas": min(scene.spec.replicas, sum(item.ready for item in scene.revisions.values())),
        "selector": f"{names.DEPLOYMENT}={scene.name}",
        "stable": arms.revision(stable),
        "canary": arms.canary(scene),
        "weight": _weight(scene) if canary else None,
        "step": _step(scene, course) if canary else None,
        "proposalLength": arms.proposal_length(stable or scene.roles.target, canary),
        "model": _payload(stable or scene.roles.target).get("model"),
        "ready": f"{sum(item.ready for item in scene.revisions.values())}/{scene.spec.replicas}",
        "gpu": "/".join(scene.spec.accelerator.products)[:MAX_SHORT] or None,
        "routing": list(_routing(scene)) or None,
        "url": f"http://{scene.name}.{scene.sdd['metadata']['namespace']}:{names.PORT}",
        "metrics": [_metric(item) for item in course.verdict.metrics] if course.verdict else None,
        "decisions": [_decision(item) for item in reversed(course.memory.decisions)] or None,
        "lastHandledAction": _action(scene, course),
        "findings": list(dict.fromkeys(clip(text) for text in _findings(scene)))[:32] or None,
        **_measured(scene, old),
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
    return {"observedGeneration": generation, "conditions": conditions, "reason": reason, "message": clip(text)}


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


def _findings(scene: Scene) -> tuple[str, ...]:
    objects, route = scene.objects, scene.routing.route
    around = route_findings(scene.sdd, scene.spec.traffic, route, objects.gateways, objects.neighbours)
    return (*findings(scene.spec), *remarks(scene.spec), *around)


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


def _metric(item: MetricVerdict) -> dict[str, Any]:
    numbers = {"estimate": item.estimate, "lower": item.lower, "upper": item.upper, "margin": item.margin}
    return {
        "name": str(item.metric),
        "outcome": str(item.outcome),
        **{key: f"{value:.1f}" for key, value in numbers.items() if value is not None},
        "unit": item.unit,
        "blocks": item.blocks,
        "message": item.message,
    }


def _decision(item: Any) -> dict[str, str]:
    return {
        "time": rfc3339(item.time),
        "reason": str(item.reason),
        "message": clip(item.message),
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
    return {"id": action.id, "type": action.type, "result": clip(answers.get(action.id) or ignored(scene, action))}


def _measured(scene: Scene, old: Mapping[str, Any]) -> dict[str, str | None]:
    """Acceptance, tokens per step and step time: the canary's once measured, else stable's; as before if unknown."""
    canary = scene.seen.canary.recent
    tally = canary if scene.roles.canary and canary.drafts else scene.seen.stable.recent
    share, tokens, seconds = acceptance_rate(tally), tokens_per_step(tally), step_time(tally)
    # Standard errors at most: a draft's accepted share lies in 0..1, its accepted tokens in 0..its length.
    per_draft = 0.5 / math.sqrt(tally.drafts) if tally.drafts else 0.0
    length = tally.draft_tokens / tally.drafts if tally.drafts else 0.0
    values = {
        "acceptance": (None if share is None else 100 * share, "{:.0f}%", max(2.0, NOISE * 100 * per_draft)),
        "tokensPerStep": (tokens, "{:.1f}", max(0.2, NOISE * length * per_draft)),
        "stepTime": (None if seconds is None else 1000 * seconds, "{:.0f} ms", max(2.0, 100 * (seconds or 0.0))),
    }
    return {key: _steady(old.get(key), *value) for key, value in values.items()}


def _steady(before: str | None, value: float | None, form: str, near: float) -> str | None:
    """As it was printed before unless it has moved by more than its noise: a fleet at rest writes nothing."""
    if value is None:
        return before
    try:
        moved = abs(value - float((before or "").rstrip("%ms ")))
    except ValueError:
        return form.format(value)
    return before if moved <= near else form.format(value)
