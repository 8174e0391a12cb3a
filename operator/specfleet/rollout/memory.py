"""What a rollout must remember from pass to pass, beside the cluster itself: its step, its decisions. Pure.

It lives in the evidence ConfigMap, never in `status`, so a wiped status loses nothing. Lost memory is harmless too:
dwell and evidence start afresh, while the pods, the promotion numbers and the abort latches are objects of their own.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from specfleet.rollout.stored import count, parsed, read

KEPT_DECISIONS = 10


@dataclass(frozen=True, slots=True)
class Decision:
    """One thing that was decided, when, about which revision, and why."""

    time: float
    reason: str
    message: str
    revision: str


@dataclass(frozen=True, slots=True)
class Rollout:
    """Where a canary is. `uids` binds it to the two revisions that it compares, stable first."""

    canary: str
    uids: tuple[str, str]
    step: int = 0
    reached: float | None = None  # since when the step's pods carry the step's weight
    blocks_before: int = 0  # blocks of evidence at that moment
    promoting: str = ""  # why it goes to 100 percent: a proof, or an action; empty while it does not
    ordered: bool = False  # by an action, which a pause does not stop
    borrowed: bool = False  # no GPU was free to surge, so stable lends a pod
    routed: int = 0  # percent that the route was last seen to give the canary
    sent: int | None = None  # percent that a write was to give it since
    sent_at: float = 0.0
    pods: tuple[int, int] | None = None  # canary's and stable's at the last step, as planned when it began
    unresolved: float | None = None  # when a gateway could not use the canary's Service, so that its weight went


@dataclass(frozen=True, slots=True)
class Contest:
    """Someone else rewrites our part of the route: who, how often, and when last."""

    manager: str
    times: int
    last: float


@dataclass(frozen=True, slots=True)
class Memory:
    """All that is remembered of one SDD. `spec` is the last valid one, without `replicas`. What a newer operator wrote
    and this one does not know is passed over."""

    rollout: Rollout | None = None
    decisions: tuple[Decision, ...] = ()
    spec: Mapping[str, Any] = field(default_factory=dict)
    contest: Contest | None = None
    base_weight: int = 1  # of `Service <name>` in the user's own route at rest, as Git says

    def decided(self, decision: Decision) -> "Memory":
        """The memory with one more decision, the oldest forgotten beyond ten."""
        return replace(self, decisions=(*self.decisions, decision)[-KEPT_DECISIONS:])

    def to_json(self) -> str:
        """Compact JSON; equal memories give equal text."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> "Memory":
        """The inverse of `to_json`; anything unreadable is an empty memory, since losing it is harmless."""
        try:
            raw = parsed(text)
            rollout, contest = raw["rollout"], raw.get("contest")
            return Memory(
                rollout=None if rollout is None else read(Rollout, rollout),
                decisions=tuple(read(Decision, item) for item in raw["decisions"]),
                spec=dict(raw["spec"]),
                contest=None if contest is None else read(Contest, contest),
                base_weight=count(raw.get("base_weight", 1)),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return Memory()
