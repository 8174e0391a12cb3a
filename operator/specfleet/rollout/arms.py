"""What status says of stable and canary: their pods, what they draft, what the guards say of the canary. Pure."""

from collections.abc import Mapping
from typing import Any

from specfleet.api.status import shortened
from specfleet.judgement.guardstates import guard_states
from specfleet.rollout.capacity import plan_rows, steps_of
from specfleet.rollout.facts import arm_facts, coming_facts
from specfleet.rollout.figures import per_token
from specfleet.rollout.scene import ArmSeen, Scene
from specfleet.rollout.world import Raw, Revision


def stable(scene: Scene) -> dict[str, Any] | None:
    """The stable revision; None before the first."""
    return _arm(scene, scene.roles.stable, scene.seen.stable, _old(scene, "stable"))


def canary(scene: Scene) -> dict[str, Any] | None:
    """The canary with the word of each guard, and what its steps take; None where there is none."""
    coming, old = scene.roles.canary, _old(scene, "canary")
    shown = _arm(scene, coming, scene.seen.canary, old)
    if shown is None or coming is None:
        return None
    return {**shown, "guards": _guards(scene, coming, old), **({"plan": _plan(scene)} if scene.spec.replicas else {})}


def _old(scene: Scene, arm: str) -> Raw:
    return (scene.sdd.get("status") or {}).get(arm) or {}


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
    }
    return {key: value for key, value in known.items() if value is not None}


def _guards(scene: Scene, coming: Revision, old: Raw) -> list[dict[str, Any]]:
    serving = scene.roles.stable
    told = old.get("guards") or () if old.get("revision") == coming.name else ()
    before = {str(item.get("name")): str(item.get("message")) for item in told if isinstance(item, Mapping)}
    theirs = arm_facts(scene, serving, scene.seen.stable) if serving else None
    said = guard_states(coming_facts(scene, serving, coming), theirs, before)
    return [{"name": str(item.guard), "state": str(item.state), "message": shortened(item.message)} for item in said]


def _plan(scene: Scene) -> list[dict[str, Any]]:
    steps = () if scene.roles.undoing else steps_of(scene.spec)
    return plan_rows(scene.spec, steps, scene.borrows)


def proposal_length(stable: Revision | None, canary: Revision | None) -> str | None:
    """Draft tokens per step, `3→5` while a canary changes it."""
    now = _length(stable)
    if canary is None or _length(canary) == now:
        return now
    return f"{now}→{_length(canary)}"


def _length(revision: Revision | None) -> str | None:
    if revision is None:
        return None
    length = revision.payload.get("numSpeculativeTokens")
    return "auto" if length is None else str(length) if length else "off"
