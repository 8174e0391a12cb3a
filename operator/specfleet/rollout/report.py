"""What a pass tells the user: the status of the SDD, and whether it is news. Pure.

Its parts: `conditions`, `arms` (stable and canary), `judged` (metrics, the self-check), `figures` (what is measured).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from specfleet.api import names
from specfleet.api.conditions import merge
from specfleet.api.reasons import Reason
from specfleet.api.status import MAX_FINDINGS, MAX_SHORT, figure, readable, shortened
from specfleet.api.validation import findings
from specfleet.judgement.verdict import Metric, MetricVerdict
from specfleet.rollout import arms
from specfleet.rollout.capacity import steps_of
from specfleet.rollout.comparison import left_out
from specfleet.rollout.conditions import conditions, refused, told
from specfleet.rollout.course import Course
from specfleet.rollout.facts import counted
from specfleet.rollout.figures import measured, resolved
from specfleet.rollout.judged import metric, self_check, time_to_decision
from specfleet.rollout.margins import begun_with, max_blocks, remarks, widened
from specfleet.rollout.memory import Rollout
from specfleet.rollout.orders import ignored
from specfleet.rollout.routefindings import route_findings
from specfleet.rollout.scene import Scene
from specfleet.rollout.waiting import reachable_percent
from specfleet.rollout.world import Raw, Revision, rfc3339


def status(scene: Scene, course: Course, problems: tuple[str, ...], time: str) -> dict[str, Any]:
    """The whole status, camelCase, without anything unknown. `problems` say why the newest spec is not in force."""
    old = scene.sdd.get("status") or {}
    hold = told(scene, course, problems)
    stable, canary = scene.roles.stable, scene.roles.canary
    judged, least = course.verdict.metrics if course.verdict else (), resolved(scene, course)
    found = _findings(scene, least)
    known: dict[str, Any] = {
        "observedGeneration": _generation(scene.sdd),
        "conditions": merge(old.get("conditions") or (), conditions(scene, hold, problems, found), time),
        "reason": str(hold.reason),
        "message": shortened(hold.message),
        "replicas": min(scene.spec.replicas, sum(item.ready for item in scene.revisions.values())),
        "selector": f"{names.DEPLOYMENT}={scene.name}",
        "stable": arms.stable(scene),
        "canary": arms.canary(scene),
        "weight": _weight(scene) if canary else None,
        "step": _step(scene, course) if canary else None,
        "proposalLength": arms.proposal_length(stable or scene.roles.target, canary),
        "model": _payload(stable or scene.roles.target).get("model"),
        "ready": f"{sum(item.ready for item in scene.revisions.values())}/{scene.spec.replicas}",
        "gpu": "/".join(scene.spec.accelerator.products)[:MAX_SHORT] or None,
        "routing": [shortened(line) for line in _routing(scene)] or None,
        "url": f"http://{scene.name}.{scene.sdd['metadata']['namespace']}:{names.PORT}",
        "metrics": [metric(item, _left(scene, item), least.get(item.metric)) for item in judged] or None,
        "dropped": left_out(scene.seen.dropped) or None if course.verdict else None,
        "selfCheck": self_check(scene.seen.check, old, begins=canary is not None and not old.get("canary")),
        "decisions": [_decision(item) for item in reversed(course.memory.decisions)] or None,
        "lastHandledAction": _action(scene, course),
        "findings": [*found, *_notes(scene, least)][:MAX_FINDINGS] or None,
        **measured(scene, old),
    }
    return {key: value for key, value in known.items() if value is not None}


def invalid(sdd: Raw, problems: tuple[str, ...], time: str) -> dict[str, Any]:
    """The status of an SDD that never had a valid spec."""
    old, generation = sdd.get("status") or {}, _generation(sdd)
    text = "; ".join(problems)
    conditions = merge(old.get("conditions") or (), refused(text, generation), time)
    reason = str(Reason.CONFIG_INVALID)
    return {"observedGeneration": generation, "conditions": conditions, "reason": reason, "message": shortened(text)}


def matters(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a status says something new: replicas too, since a scaler reads them. Other counts, wording and measured
    figures move at every look and can wait."""
    return _news(readable(before)) != _news(after)


def _news(status: Mapping[str, Any]) -> list[Any]:
    conditions = [[item.get(key) for key in ("type", "status", "reason")] for item in status.get("conditions", ())]
    revisions = [(status.get(arm) or {}).get("revision") for arm in ("stable", "canary")]
    step = (status.get("step") or {}).get("index")
    rest = [status.get(key) for key in ("observedGeneration", "replicas", "decisions", "lastHandledAction", "findings")]
    return [conditions, revisions, step, *rest]


def _findings(scene: Scene, least: Mapping[Metric, float]) -> tuple[str, ...]:
    """What should be changed, each once."""
    objects, route = scene.objects, scene.routing.route
    around = route_findings(scene.sdd, scene.spec.traffic, route, objects.gateways, objects.neighbours)
    margins = remarks(scene.spec, least, begun_with(scene.memory.rollout))
    return tuple(dict.fromkeys(map(shortened, (*findings(scene.spec), *margins, *around))))[:MAX_FINDINGS]


def _notes(scene: Scene, least: Mapping[Metric, float]) -> Iterator[str]:
    """What asks for nothing to be done."""
    return map(shortened, widened(scene.spec, least, begun_with(scene.memory.rollout)))


def _left(scene: Scene, item: MetricVerdict) -> str | None:
    pace = (scene.seen.evidence.seen, max_blocks(scene.spec), scene.spec.rollout.analysis.block_seconds)
    return time_to_decision(item, *pace)


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
        "counted": None if step.cohort or promoting else _counted(scene, course.turn.rollout),
        "since": None if course.turn.rollout.reached is None else rfc3339(course.turn.rollout.reached),
    }
    return {key: value for key, value in known.items() if value is not None}


def _counted(scene: Scene, rollout: Rollout) -> str | None:
    if rollout.reached is None or scene.seen.evidence_of != rollout.uids:
        return None
    mine, both, _ = counted(rollout, scene.seen.evidence)
    return f"{100 * mine / both:.0f}% of {figure(both, 0)} requests" if both else None


def _decision(item: Any) -> dict[str, str]:
    return {
        "time": rfc3339(item.time),
        "reason": str(item.reason)[:MAX_SHORT],
        "message": shortened(item.message),
        "revision": item.revision[:MAX_SHORT],
    }


def _action(scene: Scene, course: Course) -> dict[str, str] | None:
    action = scene.spec.rollout.action
    if action is None:
        return None
    meant = scene.revisions.get(action.revision)
    answers = dict(meant.answered) if meant else {}
    for mark in course.marks:
        answers |= json.loads(mark.notes.get(names.ACTIONS) or "{}")
    return {"id": action.id, "type": action.type, "result": shortened(answers.get(action.id) or ignored(scene, action))}
