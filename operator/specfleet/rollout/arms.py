"""What status says of stable and canary: their pods, what they draft, what the guards say of the canary. Pure."""

from collections.abc import Mapping
from typing import Any

from specfleet.judgement.report import report
from specfleet.rollout.facts import arm_facts, coming_facts
from specfleet.rollout.scene import Scene
from specfleet.rollout.world import Revision


def revision(shown: Revision | None) -> dict[str, Any] | None:
    """One revision; None where there is none."""
    if shown is None:
        return None
    return {
        "revision": shown.name,
        "method": str(shown.payload.get("method", "none")),
        "numSpeculativeTokens": str(shown.payload.get("numSpeculativeTokens", "")),
        "replicas": shown.wanted,
        "ready": shown.ready,
    }


def canary(scene: Scene) -> dict[str, Any] | None:
    """The canary with the word of each guard."""
    coming, stable = scene.roles.canary, scene.roles.stable
    shown = revision(coming)
    if shown is None or coming is None:
        return None
    old = (scene.sdd.get("status") or {}).get("canary") or {}
    told = old.get("guards") or () if old.get("revision") == coming.name else ()
    before = {str(item.get("name")): str(item.get("message")) for item in told if isinstance(item, Mapping)}
    said = report(coming_facts(scene, coming), arm_facts(scene, stable, scene.seen.stable) if stable else None, before)
    guards = [{"name": str(item.guard), "state": str(item.state), "message": clip(item.message)} for item in said]
    return {**shown, "guards": guards}


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


def clip(text: str) -> str:
    """A text that its field of status has room for."""
    return text if len(text) <= 1024 else f"{text[:1023]}…"
