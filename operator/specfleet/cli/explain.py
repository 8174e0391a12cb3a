"""Why a fleet has this weight and this proposal length: the view of `explain`. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from specfleet.api.reasons import named
from specfleet.cli.capacity import plan, standing
from specfleet.cli.case import Case, Stage, demands
from specfleet.cli.evidence import ARMS, course, metrics, notes
from specfleet.cli.lengths import lengths, pods
from specfleet.cli.tree import head
from specfleet.cli.words import Shown, count, indented
from specfleet.judgement.judge import HIDDEN
from specfleet.rollout.judged import metric
from specfleet.rollout.memory import KEPT_DECISIONS, Decision
from specfleet.rollout.shape import Shape
from specfleet.rollout.turn import step_at
from specfleet.rollout.waiting import describe
from specfleet.rollout.world import Raw, rfc3339


@dataclass(frozen=True, slots=True)
class _View:
    case: Case
    now: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield from _sections(self.case, self.now, options.max_width)


def explained(case: Case, now: float) -> Shown:
    """The whole explanation of `case` at `now` (seconds since the epoch)."""
    return Shown(_View(case, now))


def _sections(case: Case, now: float, width: int) -> Iterator[RenderableType]:
    yield from head(case.fleet, now)
    yield Group("", _weight(case, now))
    if rows := case.plan:
        here = standing(case.fleet.status.get("step") or {}, rows) if case.stage is Stage.CANARY else 0
        yield Group("", plan(rows, "Plan" if here else "What a canary takes", here))
    judged = _judged(case)
    if judged:
        yield Group("", metrics(judged, width, case.dropped, _arms(case)))
    if case.looks:
        yield Group("", course(case.looks))
    if case.stage is Stage.CANARY:
        yield Group("", _compared(case))
    yield Group("", lengths(case))
    if case.record.evidence.blocks:
        yield Group("", pods(case))
    if case.decisions:
        yield Group("", _decisions(case.decisions))
    if said := (*((case.record.trouble,) if case.record.trouble else ()), *case.fleet.notes):
        yield Group("", notes(said))


def _judged(case: Case) -> list[Raw]:
    """Each metric of the rollout on its way, else of the last one; of the record, else of status."""
    if case.verdict:
        return [metric(item, case.left(item)) for item in case.verdict.metrics]
    return list(case.fleet.status.get("metrics") or ()) if case.stage in (Stage.CANARY, Stage.ABORTED) else []


def _arms(case: Case) -> str:
    about = case.record.comparison
    if not (case.past and case.verdict):
        return ARMS
    return f"of the last rollout, {about.canary} minus {about.stable}" if about else f"of the last rollout, {ARMS}"


def _weight(case: Case, now: float) -> RenderableType:
    lines = {
        Stage.FIRST: _first,
        Stage.CANARY: _canary,
        Stage.ABORTED: _aborted,
        Stage.REST: _rest,
    }[case.stage](case)
    parts: list[RenderableType] = [Text("Why this weight", "bold"), indented(lines)]
    if case.stage is Stage.CANARY and (asked := list(demands(case, now))):
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for demand in asked:
            symbol, style = ("✔", "green") if demand.met else ("◌", "yellow")
            table.add_row(Text.assemble("  ", (symbol, style), f" {demand.what}"), demand.state)
        parts += [Text(f"  {_next(case)} asks for"), table]
    return Group(*parts)


def _first(case: Case) -> Iterator[str]:
    name = case.target.name if case.target else "the first revision"
    yield f"nothing to share yet: {name} becomes stable once its pods are ready, alive and correct, without steps"
    if case.target:
        for pod in case.target.pods:
            if why := pod.unschedulable or pod.trouble:
                yield f"{pod.name}: {why}"


def _canary(case: Case) -> Iterator[str]:
    rollout, weight = case.record.memory.rollout, case.fleet.status.get("weight", "an unknown share")
    name = case.target.name if case.target else case.fleet.status.get("canary", {}).get("revision", "the canary")
    if rollout is None:
        yield f"{name} has {weight}; the record does not say at which step"
        return
    index = min(rollout.step, len(case.steps) - 1)
    if rollout.promoting:
        yield f"{name} has {weight} and goes to 100%: {rollout.promoting}"
    elif rollout.reached is None:
        yield f"{name} has {weight} and is on its way to step {index + 1} of {len(case.steps)}, {_asked(case, index)}"
    else:
        yield f"{name} has {weight}: step {index + 1} of {len(case.steps)}, {_asked(case, index)}"
        yield f"reached {rfc3339(rollout.reached)}"
    if rollout.borrowed:
        yield "no GPU was free to surge, so stable lends a pod"


def _asked(case: Case, index: int) -> str:
    shape = Shape(case.target.wanted if case.target else 0, case.stable.wanted if case.stable else 0)
    return describe(case.steps[index], shape, case.gateway) if shape.canary else f"asked {case.steps[index]}"


def _next(case: Case) -> str:
    rollout = case.record.memory.rollout
    following = rollout.step + 1 if rollout and rollout.reached is not None and not rollout.promoting else None
    if rollout and not rollout.promoting and following is None:
        return str(step_at(case.steps, rollout))
    return str(case.steps[following]) if following is not None and following < len(case.steps) else "100%"


def _aborted(case: Case) -> Iterator[str]:
    if case.target is None:
        yield f"all traffic is stable's: {case.fleet.message}"
        return
    reason, _, message = case.target.aborted.partition(": ")
    decided = case.last(case.target.name, reason)
    yield f"all traffic is stable's: {case.target.name} was aborted{f' {rfc3339(decided.time)}' if decided else ''}"
    yield f"{reason}: {message or case.fleet.message}"
    if known := named(reason):
        yield f"{known.means} {known.todo}"
    yield f"it stays aborted until the spec changes, or `retry {case.fleet.name}`"


def _rest(case: Case) -> Iterator[str]:
    if case.stable is None:
        yield f"all traffic is stable's: {case.fleet.message}"
        return
    name, promoted = case.stable.name, case.last(case.stable.name, "Promoted")
    since = promoted.time if promoted else case.stable.promoted_at
    yield f"{name} has all traffic, since promotion {case.stable.promoted}{f', {rfc3339(since)}' if since else ''}"
    if promoted:
        yield promoted.message
    else:
        yield "the decision that promoted it is no longer remembered"
    yield from (f"{pod.name}: {pod.unschedulable}" for pod in case.stable.pods if pod.unschedulable)


def _compared(case: Case) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("  speed", "always: decode tokens per second of a request, at like load")
    table.add_row("  errors", "always: the share of requests answered 5xx")
    if case.policy and case.policy.ttft_limit is not None:
        table.add_row("  ttft", f"the share of first tokens that come later than {case.policy.ttft_limit:g} s")
    table.add_row("  acceptance", _acceptance(case))
    blocks = count(case.record.evidence.seen, "block")
    return Group(Text.assemble(("What is compared", "bold"), (f"  {blocks} so far", "dim")), table)


def _acceptance(case: Case) -> str:
    if case.differs is None:
        return "unknown: the revisions could not be read, so it is left out here"
    if case.differs:
        return f"not compared, it means something else on each arm ({'; '.join(case.differs)})"
    if not case.comparable:
        return f"not compared: {HIDDEN}"
    if case.target and case.target.payload.get("method") == "none":
        return "not compared: neither arm drafts anything"
    return "compared: method, proposal length and schedule are equal"


def _decisions(decided: tuple[Decision, ...]) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for item in decided[:KEPT_DECISIONS]:
        said = Text.assemble((item.reason, "bold"), "  ", item.message)
        table.add_row(Text(f"  {rfc3339(item.time)}", "dim"), said)
    return Group(Text("Decisions", "bold"), table)
