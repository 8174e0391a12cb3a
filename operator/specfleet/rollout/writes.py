"""A course becomes writes, in an order in which a stop after any of them does no harm. Pure."""

import json
from collections.abc import Iterator
from dataclasses import replace

from specfleet.api import names
from specfleet.resources.disruption import disruption_budget
from specfleet.resources.evidence import COMPARISON, EVIDENCE, evidence_map, read_evidence
from specfleet.resources.owned import differs, is_ours
from specfleet.resources.revision import controller_revision, render
from specfleet.resources.service import revision_service
from specfleet.resources.workload import deployment
from specfleet.rollout import margins
from specfleet.rollout.comparison import Comparison
from specfleet.rollout.course import Course
from specfleet.rollout.likeness import drafts_alike
from specfleet.rollout.lingering import lingering
from specfleet.rollout.memory import Rollout
from specfleet.rollout.moves import Drain, Fleet, Restore, Scale, moves
from specfleet.rollout.preconditions import Verb, Write, applied, deleted, patched
from specfleet.rollout.revision import identity, pick_hash
from specfleet.rollout.scene import Scene
from specfleet.rollout.traffic import Shift, remaining, shift
from specfleet.rollout.world import Pod, Raw, Revision, rfc3339

SETTLE_SECONDS = 3.0  # endpoints take a moment to reach every proxy: a pod is not idle before


def writes(scene: Scene, course: Course) -> list[Write]:
    """What to write in this pass: what lowers risk, then what adds pods, then what raises risk, then what tidies."""
    requests = shift(scene, course)
    if requests.share is not None and course.memory.rollout:
        rollout = replace(course.memory.rollout, sent=requests.share, sent_at=scene.now)
        course = replace(course, memory=replace(course.memory, rollout=rollout))
    workloads = list(_workloads(scene, course, requests))
    return [
        *_marked(course, urgent=True),
        *_unlatched(scene),
        *requests.lowering,
        *_created(scene, course),
        *_memory(scene, course),
        *_marked(course, urgent=False),
        *workloads,
        *requests.raising,
        *_promotion(scene, course),
        *_budget(scene),
        *_tidied(scene, course),
    ]


def _marked(course: Course, urgent: bool) -> Iterator[Write]:
    for mark in course.marks:
        if mark.urgent is urgent:
            yield patched(mark.revision.record, {"annotations": dict(mark.notes)}, mark.why)


def _unlatched(scene: Scene) -> Iterator[Write]:
    """The spec has changed since: what was aborted then may be tried again."""
    if scene.roles.stable and scene.roles.stable.aborted:
        return  # the way back is not to be tried again and again
    for revision in scene.roles.others:
        if revision.aborted and revision is not scene.roles.target:
            yield patched(
                revision.record, {"annotations": {names.ABORTED: None}}, f"{revision.name} may be tried again"
            )


def _created(scene: Scene, course: Course) -> Iterator[Write]:
    """The new revision's ControllerRevision; its Deployment and Service follow in the passes after it."""
    if not course.create:
        return
    full = identity(scene.written)
    digest, _ = pick_hash(full, lambda candidate: names.revision_name(scene.name, candidate) in scene.revisions)
    name = names.revision_name(scene.name, digest)
    action = scene.spec.rollout.action
    before = "Ignored: it was there before the revision"
    seen = {names.ACTIONS: json.dumps({action.id: before})} if action and action.revision == name else {}
    number = 1 + max((revision.number for revision in scene.revisions.values()), default=0)
    record = controller_revision(scene.sdd, name, number, full, render(scene.name, name, scene.spec), seen)
    yield Write(Verb.CREATE, record, f"revision {number}: {name}")


def _workloads(scene: Scene, course: Course, requests: Shift) -> Iterator[Write]:
    rollout = course.memory.rollout
    wanted = dict(course.wanted)
    for item in _outgoing(scene):
        wanted[item.name] = max(wanted.get(item.name, 0), min(item.wanted, lingering(scene, item)))
    fleet = Fleet(
        revisions=_growing_order(scene),
        wanted=wanted,
        carriers=remaining(scene, requests),
        bounds=scene.bounds(rollout.borrowed if rollout else scene.borrows),
        finished=lambda pod: _finished(scene, pod),
        lingering=sum(_lingers(pod, scene.now) for item in scene.revisions.values() for pod in item.pods),
    )
    planned = moves(fleet)
    scaled = {move.revision.name: move for move in planned if isinstance(move, Scale)}
    for move in planned:
        if isinstance(move, Restore):
            unset = {names.DRAINING_SINCE: None, names.DELETION_COST: None}
            yield patched(move.pod.raw, {"labels": {names.SERVING: "true"}, "annotations": unset}, move.why)
    for revision in fleet.revisions:
        yield from _revision_objects(scene, revision, scaled.get(revision.name))
    for move in planned:
        if isinstance(move, Drain):
            since = {names.DRAINING_SINCE: rfc3339(scene.now), names.DELETION_COST: str(move.cost)}
            yield patched(move.pod.raw, {"labels": {names.SERVING: None}, "annotations": since}, move.why)


def _outgoing(scene: Scene) -> tuple[Revision, ...]:
    """Revisions that may have to keep pods for requests that still reach them: stable too, once a canary can serve."""
    roles = scene.roles
    replaced = roles.canary and roles.canary.ready and roles.stable
    return tuple(item for item in (*roles.others, roles.canary, replaced) if isinstance(item, Revision))


def _growing_order(scene: Scene) -> tuple[Revision, ...]:
    """Stable grows first, then what comes; what is left over only shrinks."""
    roles = scene.roles
    ordered = [revision for revision in (roles.stable, roles.canary, roles.target, *roles.others) if revision]
    return tuple({revision.name: revision for revision in ordered}.values())


def _revision_objects(scene: Scene, revision: Revision, scale: Scale | None) -> Iterator[Write]:
    replicas = scale.replicas if scale else revision.wanted
    if not (revision.alive or replicas):
        return
    desired = deployment(scene.sdd, revision.name, revision.payload, replicas)
    why = scale.why if scale else ""
    yield from applied(revision_service(scene.sdd, revision.name), scene.objects.services.get(revision.name), "")
    live, risky = revision.deployment, replicas < revision.wanted
    if live is not None and scale and _only_scaled(desired, live):
        yield _scaled(live, scale, risky)
    else:
        yield from applied(desired, live, why, risky)


def _only_scaled(desired: Raw, live: Raw) -> bool:
    """Nothing but the replicas differs: then the template is not sent again."""
    return differs(desired, {**live, "spec": {**live["spec"], "replicas": desired["spec"]["replicas"]}}) is None


def _scaled(live: Raw, scale: Scale, risky: bool) -> Write:
    patch = patched(live, {}, scale.why, risky)
    return replace(patch, body={**patch.body, "spec": {"replicas": scale.replicas}})


def _lingers(pod: Pod, now: float) -> bool:
    return pod.gone_by is not None and now < pod.gone_by


def _finished(scene: Scene, pod: Pod) -> bool:
    """A draining pod may go: it serves nobody, or its time is up."""
    if not pod.ready or pod.draining_since is None:
        return not pod.ready
    if scene.now >= pod.draining_since + scene.spec.pod.drain_seconds:
        return True
    return scene.seen.idle.get(pod.uid, 0.0) >= pod.draining_since + SETTLE_SECONDS


def _promotion(scene: Scene, course: Course) -> Iterator[Write]:
    if course.promote is None:
        return
    number = 1 + max((revision.promoted for revision in scene.revisions.values()), default=0)
    notes = {names.PROMOTED: f"{number} {rfc3339(scene.now)}"}
    why = f"{course.promote.name} becomes stable (promotion {number})"
    yield patched(course.promote.record, {"annotations": notes}, why, risky=True)


def _budget(scene: Scene) -> Iterator[Write]:
    if scene.roles.stable:
        desired = disruption_budget(scene.sdd, scene.roles.stable.name)
        why = f"drains may take one pod of {scene.roles.stable.name} at a time"
        yield from applied(desired, scene.objects.disruption_budgets.get(scene.name), why)


def _memory(scene: Scene, course: Course) -> Iterator[Write]:
    """Memory and evidence, one object: written when a block is complete or something was decided, never at rest."""
    data = {"memory": course.memory.to_json()}
    data |= _evidence(scene, course.memory.rollout)
    desired = evidence_map(scene.sdd, data)
    live = scene.objects.evidence
    if live is not None and is_ours(live, scene.uid) and (live.get("data") or {}) != desired["data"]:
        body = {**desired, "metadata": {**desired["metadata"], "uid": live["metadata"]["uid"]}}
        yield Write(Verb.APPLY, body, "memory")
    elif live is None:
        yield Write(Verb.CREATE, desired, "memory")


def _evidence(scene: Scene, rollout: Rollout | None) -> dict[str, str]:
    """Of a rollout that is proven or over: what is stored, to be shown again; nothing is added, and nobody judges by
    it. The next rollout begins with nothing."""
    proven = scene.memory.rollout and scene.memory.rollout.promoting  # not in this pass: its block is to be kept
    stored = (read_evidence(scene.objects.evidence) if scene.objects.evidence else None) or {}
    kept = {key: text for key, text in stored.items() if key in (EVIDENCE, COMPARISON)}
    if rollout is None or proven:
        return kept
    if scene.seen.evidence_of != rollout.uids:
        return {}
    stable, canary = scene.roles.stable, scene.roles.canary
    return kept if stable is None or canary is None else _gathered(scene, rollout, stable, canary)


def _gathered(scene: Scene, rollout: Rollout, stable: Revision, canary: Revision) -> dict[str, str]:
    """The blocks so far, and with them what they were judged by."""
    seen = scene.seen
    found = {EVIDENCE: seen.evidence.to_json()} if seen.evidence.blocks else {}
    if seen.evidence.blocks or seen.dropped:
        block_seconds = scene.spec.rollout.analysis.block_seconds
        policy = margins.policy(scene.spec, margins.begun_with(rollout))
        by = (drafts_alike(stable.payload, canary.payload), policy, block_seconds, seen.dropped)
        found[COMPARISON] = Comparison(rollout.uids, stable.name, canary.name, *by).to_json()
    return found


def _tidied(scene: Scene, course: Course) -> Iterator[Write]:
    """Objects of revisions that are over: no pods, none wanted."""
    keep = {revision.name for revision in (scene.roles.stable, scene.roles.canary) if revision}
    kept = sorted((item for item in scene.roles.others if item.promoted), key=lambda item: -item.promoted)
    beyond = kept[scene.spec.revision_history_limit :]
    for revision in scene.roles.others:
        if revision.name in keep or revision.alive or course.wanted.get(revision.name):
            continue
        if any(backend.name == revision.name for backend in scene.routing.backends):
            continue  # without weight, but a route must not name what is not there
        for live in (revision.deployment, scene.objects.services.get(revision.name)):
            if live is not None and is_ours(live, scene.uid):
                yield deleted(live, f"{revision.name} is over")
        unwanted = not revision.promoted and revision is not scene.roles.target
        if unwanted or revision in beyond:
            yield deleted(revision.record, f"{revision.name} is no longer kept")
