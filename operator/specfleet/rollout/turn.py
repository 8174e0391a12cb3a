"""What a look at a canary takes and what it gives: the user's policy, what was seen, the turn that follows. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from specfleet.api.reasons import Reason
from specfleet.judgement.guards import Failure
from specfleet.judgement.verdict import Metric, Verdict
from specfleet.rollout.memory import Rollout
from specfleet.rollout.note import Note
from specfleet.rollout.shape import Bounds, Shape
from specfleet.rollout.world import Revision


@dataclass(frozen=True, slots=True)
class Step:
    """A share of the traffic in percent, or a cohort of clients, and how long to stay there at least."""

    weight: int
    min_seconds: int = 0
    cohort: str = ""

    def __str__(self) -> str:
        return f"cohort {self.cohort}" if self.cohort else f"{self.weight}%"


def step_at(steps: Sequence[Step], rollout: Rollout) -> Step:
    """The step that a rollout stands at: the last one where the spec has fewer by now."""
    return steps[min(rollout.step, len(steps) - 1)]


@dataclass(frozen=True, slots=True)
class Policy:
    """What the user asked of the rollout; `unresolvable` says by metric why its margin proves no canary."""

    steps: tuple[Step, ...]
    bounds: Bounds
    paused: bool
    max_blocks: int
    abort_inconclusive: bool
    startup_seconds: float
    unresolvable: Mapping[Metric, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """What this pass saw of a canary. `probed` counts its ready pods that answered every probe well; `since` is when
    the looking began; `unreachable` says whose metrics cannot be read, `dark` that the canary's long could not.

    With a gateway: `weight` is the percent that the route gives the canary and `cohort` the one that it serves;
    `pending` says why the route is not known to be in force, `unroutable` why no weight may go to the canary now, and
    `split` why the requests that the pods counted are not the share asked for. `drafts` are the canary's of late;
    `still` says that it has requests running and makes no engine step. `cannot_lend` is why stable gives up no pod for
    it where no GPU is free, `in_vain` why one that it gives up would make no room at all."""

    canary: Revision
    stable: Revision
    failure: Failure | None
    verdict: Verdict
    blocks: int
    probed: int
    probe_unknown: str
    carrying: bool
    third: bool
    since: float
    unreachable: str
    dark: bool
    promote_asked: bool
    abort_asked: bool
    weight: int | None = None
    cohort: str = ""
    pending: Note | None = None
    unroutable: Note | None = None
    split: Note | None = None
    drafts: float = 0.0
    still: bool = False
    cannot_lend: str = ""
    in_vain: str = ""


@dataclass(frozen=True, slots=True)
class Abort:
    """The canary ends here. A `hard` one leaves at once; a soft one as fast as stable's capacity allows."""

    reason: Reason
    message: str
    hard: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """The outcome of one look: the next rollout, the pods wanted, whether the canary takes traffic, why it waits."""

    rollout: Rollout
    shape: Shape
    carry: bool
    hold: Note
    decided: Note | None = None
    abort: Abort | None = None
    promote: bool = False
