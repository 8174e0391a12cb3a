"""What people ask by `spec.rollout.action`: what is honoured, how that is kept, and why the rest is ignored. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specfleet.api import names
from specfleet.api.reasons import Reason
from specfleet.api.v1alpha1 import Action
from specfleet.rollout.scene import Scene
from specfleet.rollout.world import Revision

HONOURED = "Honoured"
KEPT_ANSWERS = 20


@dataclass(frozen=True, slots=True)
class Mark:
    """Annotations for a ControllerRevision: what must outlive a lost status. None takes one off.

    An `urgent` mark is the first write of the pass; others follow the memory that goes with them.
    """

    revision: Revision
    notes: Mapping[str, str | None]
    why: str
    urgent: bool = False


def ordered(scene: Scene, revision: Revision) -> str:
    """The type of the action that is meant for this revision and has not been answered yet; empty if there is none."""
    action = scene.spec.rollout.action
    meant = action is not None and action.revision == revision.name and action.id not in revision.answered
    return str(action.type) if action and meant else ""


def answer(revision: Revision, action: Action, result: str) -> dict[str, str | None]:
    """The annotation that keeps what became of an action, beside the last few before it: none is looked at twice."""
    answers = {**revision.answered, action.id: result}
    return {names.ACTIONS: json.dumps(dict(list(answers.items())[-KEPT_ANSWERS:]))}


def of_the_canary(scene: Scene, canary: Revision) -> tuple[Mark, ...]:
    """Promote and Abort are honoured while a canary is there; what they do is the canary's next turn."""
    action = scene.spec.rollout.action
    if action is None or ordered(scene, canary) not in ("Promote", "Abort"):
        return ()
    return (Mark(canary, answer(canary, action, HONOURED), f"{action.type} is honoured"),)


def at_rest(scene: Scene) -> tuple[Mark, ...]:
    """Without a canary: Retry lifts an abort, Undo rejects the stable revision."""
    roles, action = scene.roles, scene.spec.rollout.action
    if action is None:
        return ()
    if roles.target and roles.latched and ordered(scene, roles.target) == "Retry":
        notes = {names.ABORTED: None, **answer(roles.target, action, HONOURED)}
        return (Mark(roles.target, notes, f"{roles.target.name} is tried again: Retry was asked for"),)
    stable = undoable(scene)
    if stable and ordered(scene, stable) == "Undo":
        notes = {names.ABORTED: f"{Reason.UNDONE}: Undo was asked for", **answer(stable, action, HONOURED)}
        return (Mark(stable, notes, f"{stable.name} is rejected: Undo was asked for"),)
    return ()


def undoable(scene: Scene) -> Revision | None:
    """The stable revision, where it is the spec's, nobody has rejected it yet, and one before it is kept."""
    roles = scene.roles
    if roles.stable is None or roles.target is not roles.stable or roles.previous is None or roles.stable.aborted:
        return None
    return roles.stable


def unanswered(scene: Scene, marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """An action that nothing in `marks` honours is answered now, or it would act on a later state that nobody meant."""
    action = scene.spec.rollout.action
    meant = scene.revisions.get(action.revision) if action else None
    if action is None or meant is None or not ordered(scene, meant):
        return ()
    if any(names.ACTIONS in mark.notes for mark in marks):
        return ()
    result = ignored(scene, action)
    return (Mark(meant, answer(meant, action, result), f"{action.type} is not honoured: {result}"),)


def ignored(scene: Scene, action: Action) -> str:
    """Why an action is not honoured."""
    roles, needed = scene.roles, {"Retry": "aborted", "Undo": "stable"}.get(action.type, "the canary")
    if action.type == "Undo" and roles.stable and roles.stable.name == action.revision and roles.previous is None:
        return "UndoUnavailable: no earlier promoted revision is kept"
    return f"Ignored: {action.revision} is not {needed}"
