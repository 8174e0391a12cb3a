"""What a pass tells the user: the status of the SDD and its conditions. Pure."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from specfleet.api import names
from specfleet.api.conditions import merge
from specfleet.api.reasons import Reason
from specfleet.api.validation import findings
from specfleet.judgement.verdict import MetricVerdict
from specfleet.rollout.capacity import foreseen, plan_rows
from specfleet.rollout.conditions import conditions, refused, told
from specfleet.rollout.course import Course
from specfleet.rollout.facts import steps_of
from specfleet.rollout.margins import remarks
from specfleet.rollout.orders import ignored
from specfleet.rollout.routefindings import route_findings
from specfleet.rollout.scene import Scene
from specfleet.rollout.waiting import reachable_percent
from specfleet.rollout.world import Raw, Revision, rfc3339
from specfleet.telemetry.derived import acceptance_rate, step_time, tokens_per_step

MAX_SHORT = 253
NOISE = 5.0  # standard errors by which a printed figure must move: 100 quiet fleets write it a few times an hour


def status(scene: Scene, course: Course, problems: tuple[str, ...], time: str) -> dict[str, Any]:
    """The whole status, camelCase, without anything unknown. `problems` say why the newest spec is not in force."""
    old = scene.sdd.get("status") or {}
    hold = told(scene, course, problems)
    stable, canary = scene.roles.stable, scene.roles.canary
    known: dict[str, Any] = {
        "observedGeneration": _generation(scene.sdd),
        "conditions": merge(old.get("conditions") or (), conditions(scene, hold, problems), time),
        "reason": str(hold.reason),
        "message": _clip(hold.message),
        "replicas": min(scene.spec.replicas, sum(item.ready for item in scene.revisions.values())),
        "selector": f"{names.DEPLOYMENT}={scene.name}",
        "stable": _revision(stable),
        "canary": _canary(scene, canary),
        "weight": _weight(scene) if canary else None,
        "step": _step(scene, course) if canary else None,
        "proposalLength": _proposal_length(stable or scene.roles.target, canary),
        "model": _payload(stable or scene.roles.target).get("model"),
        "ready": f"{sum(item.ready for item in scene.revisions.values())}/{scene.spec.replicas}",
        "gpu": "/".join(scene.spec.accelerator.products)[:MAX_SHORT] or None,
        "routing": list(_routing(scene)) or None,
        "url": f"http://{scene.name}.{scene.sdd['metadata']['namespace']}:{names.PORT}",
        "metrics": [_metric(item) for item in course.verdict.metrics] if course.verdict else None,
        "decisions": [_decision(item) for item in reversed(course.memory.decisions)] or None,
        "lastHandledAction": _action(scene, course),
        "findings": list(dict.fromkeys(_clip(text) for text in _findings(scene)))[:32] or None,
        **_measured(scene, old),
    }
    return {key: value for key, value in known.items() if value is not None}


def invalid(sdd: Raw, problems: tuple[str, ...], time: str) -> dict[str, Any]:
    """The status of an SDD that never had a valid spec."""
    old, generation = sdd.get("status") or {}, _generation(sdd)
    text = "; ".join(problems)
    conditions = merge(old.get("conditions") or (), refused(text, generation), time)
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


def _findings(scene: Scene) -> tuple[str, ...]:
    objects, route = scene.objects, scene.routing.route
    around = route_findings(scene.sdd, scene.spec.traffic, route, objects.gateways, objects.neighbours)
    return (*findings(scene.spec), *remarks(scene.spec), *around)


def _generation(sdd: Raw) -> int:
    return int(sdd["metadata"].get("generation", 0))


def _payload(revision: Revision | None) -> Mapping[str, Any]:
    return revision.payload if revision else {}


def _revision(revision: Revision | None) -> dict[str, Any] | None:
    if revision is None:
        return None
    return {
        "revision": revision.name,
        "method": str(revision.payload.get("method", "none")),
        "numSpeculativeTokens": str(revision.payload.get("numSpeculativeTokens", "")),
        "replicas": revision.wanted,
        "ready": revision.ready,
    }


def _canary(scene: Scene, canary: Revision | None) -> dict[str, Any] | None:
    said = _revision(canary)
    if said is None or not scene.spec.replicas:
        return said
    steps = () if scene.roles.undoing else steps_of(scene.spec)
    plan = foreseen(steps, scene.bounds(scene.borrows))
    return {**said, "plan": plan_rows(plan, scene.routing.gateway, scene.spec.accelerator.count, scene.spec.replicas)}


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
        "since": None if course.turn.rollout.reached is None else rfc3339(course.turn.rollout.reached),
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


def _clip(text: str) -> str:
    return text if len(text) <= 1024 else f"{text[:1023]}…"
