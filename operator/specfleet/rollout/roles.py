"""Who is who at this pass: stable, target, canary, what is retained, and what is left over. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from specfleet.api.reasons import Reason
from specfleet.rollout.world import Revision, stable_of

#: Aborts after which the canary leaves in that pass; after others it leaves as fast as stable's capacity allows.
HARD_ABORTS = frozenset(
    {
        Reason.CANARY_DEAD,
        Reason.CANARY_INCORRECT,
        Reason.CANARY_ERRORING,
        Reason.CANARY_STUCK,
        Reason.PROGRESS_DEADLINE_EXCEEDED,
    }
)


@dataclass(frozen=True, slots=True)
class Roles:
    """`target` is the revision of the current spec, None before it exists; `canary` is it while it is on its way.

    `others` are all further revisions; `previous` is the one that an undo of stable returns to, `retained` is it while
    its pods are kept. When `undoing`, stable is rejected and the canary is the previous one on its way back.
    """

    stable: Revision | None
    target: Revision | None
    canary: Revision | None
    retained: Revision | None
    others: tuple[Revision, ...]
    previous: Revision | None = None
    undoing: bool = False

    @property
    def latched(self) -> bool:
        """The current spec's revision was aborted, and stays so until the spec changes."""
        return self.target is not None and bool(self.target.aborted) and self.target is not self.stable

    @property
    def leaving(self) -> tuple[Revision, ...]:
        """Revisions that have pods and should have none, the aborted one among them."""
        return tuple(arm for arm in self.others if arm.alive and arm is not self.retained)


def assign(revisions: Mapping[str, Revision], identity: str, retain_seconds: float, now: float) -> Roles:
    """The roles of `revisions` for a spec with this identity."""
    stable = stable_of(revisions.values())
    target = next((arm for arm in revisions.values() if arm.identity == identity), None)
    in_play = target is not None and target is not stable and not target.aborted
    before = stable_of(arm for arm in revisions.values() if arm is not stable and not arm.aborted)
    undoing = stable is not None and bool(stable.aborted) and target is stable and before is not None
    canary = before if undoing else target if stable and in_play else None
    lead = {arm.name for arm in (stable, canary, target if stable is None else None) if arm}
    others = tuple(arm for arm in revisions.values() if arm.name not in lead)
    kept = stable and canary is None and stable.promoted_at and now < stable.promoted_at + retain_seconds
    retained = before if kept and before and before.wanted else None
    return Roles(stable, target, canary, retained, others, before, undoing)


def hard(aborted: str) -> bool:
    """Whether a latch, `Reason: message`, is of a kind that leaves at once."""
    return aborted.partition(":")[0] in HARD_ABORTS
