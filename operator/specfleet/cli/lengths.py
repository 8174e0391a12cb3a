"""What an arm's proposal length is, whose choice it is, and what its pods' counters say of each position. Pure."""

from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from specfleet.cli.case import Case, Stage
from specfleet.cli.fleet import speculation
from specfleet.cli.words import count, indented
from specfleet.judgement.ratios import RATIOS
from specfleet.judgement.spread import pod_spread
from specfleet.judgement.verdict import Metric
from specfleet.rollout.world import Raw, Revision
from specfleet.telemetry.counters import Tally
from specfleet.telemetry.derived import acceptance_rate, position_acceptance, speed, step_time, tokens_per_step
from specfleet.telemetry.evidence import Arm, pool
from specfleet.tuning.lengths import MIN_DRAFTS, tokens_per_step_by_length

UNKNOWN = "?"


def lengths(case: Case) -> RenderableType:
    """Why the proposal length is what it is, with acceptance by position where evidence is kept."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for arm, revision in _arms(case).items():
        if revision is not None:
            table.add_row(f"  {arm}", speculation(revision.payload), Text(_chosen(revision.payload), "dim"))
    said = Group(Text("Why this proposal length", "bold"), table, indented(_lines(case)))
    return Group(said, "", positions(case)) if case.record.evidence.blocks else said


def _arms(case: Case) -> Mapping[str, Revision | None]:
    """The revisions by their roles; a canary only where there is one."""
    target = case.target if case.target is not case.stable else None
    return {"stable": case.stable, {Stage.FIRST: "first", Stage.ABORTED: "aborted"}.get(case.stage, "canary"): target}


def _chosen(payload: Raw) -> str:
    """Where a revision's length comes from."""
    if payload.get("method") == "none":
        return "spec.speculation.method is none"
    if schedule := payload.get("schedule"):
        return f"spec.speculation.schedule: {', '.join(map(_range, schedule))}"
    if payload.get("numSpeculativeTokens") is None:
        return "not in the spec: vLLM takes the drafter's own"
    return "spec.speculation.numSpeculativeTokens"


def _range(entry: Raw) -> str:
    last = entry.get("maxBatch")
    return f"{entry.get('tokens')} at batch {entry.get('minBatch')}{f'-{last}' if last else '+'}"


def _lines(case: Case) -> Iterator[str]:
    tuning = case.spec.speculation.tuning.mode if case.spec else "Off"
    if tuning == "Off":
        yield "tuning is Off: only an edit of the spec changes it, through a canary"
    else:
        yield f"tuning is {tuning}, which has no effect in this version: only an edit of the spec changes it"
    told = case.fleet.status
    if not case.record.evidence.blocks and told.get("acceptance"):
        per_step = f", {told['tokensPerStep']} tokens per step" if told.get("tokensPerStep") else ""
        yield f"lately {told['acceptance']} accepted{per_step}; positions are recorded while a canary is compared"
    if case.verdict and case.differs and any(item.startswith("numSpeculativeTokens") for item in case.differs):
        speed = case.verdict.of(Metric.SPEED)
        yield f"whether the other length pays is what speed says: {speed.message.removeprefix('speed').lstrip(': ')}"


def positions(case: Case) -> RenderableType:
    """Acceptance at each position and tokens per step at each length up to the arm's own, both arms side by side."""
    pooled = {arm: pool(case.record.evidence.pods[arm]) for arm in Arm}
    most = max(len(tally.per_position) for tally in pooled.values())
    table = Table.grid(padding=(0, 2, 0, 0))
    for justify in ("right", *("left", "left") * len(Arm)):
        table.add_column(justify=justify, no_wrap=True)  # type: ignore[arg-type]
    if most:
        table.add_row("  length", *(cell for arm in Arm for cell in (Text(arm.value, "dim"), "")))
    for length in range(1, most + 1):
        table.add_row(str(length), *(cell for arm in Arm for cell in _position(pooled[arm], length)))
    legend = "share of drafts accepted at least so far; tokens per step if proposals ended there"
    legend = f"of the last rollout; {legend}" if case.past else legend
    short = [Text(f"  {arm}: {why}") for arm, tally in pooled.items() if (why := _too_few(tally))]
    return Group(Text.assemble(("Positions", "bold"), (f"  {legend}", "dim")), table, *short)


def _position(tally: Tally, length: int) -> tuple[str, str]:
    survival, per_step = position_acceptance(tally, length - 1), tokens_per_step_by_length(tally)
    if survival is None:
        return "", ""
    return f"{100 * survival:.0f}%", f"{per_step[length - 1]:.2f} tokens" if length <= len(per_step) else ""


def _too_few(tally: Tally) -> str:
    if not tally.speculating:
        return "does not speculate"
    return f"{tally.drafts:.0f} of {MIN_DRAFTS} drafts, too few for a forecast" if tally.drafts < MIN_DRAFTS else ""


def pods(case: Case) -> RenderableType:
    """Every pod that was ever in a block, with what it contributed; leavers keep their sums."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for column in range(7):
        table.add_column(justify="left" if column < 2 else "right", no_wrap=column != 1, overflow="fold")
    for arm in Arm:
        for name, tally in sorted(case.record.evidence.pods[arm].items()):
            table.add_row(f"  {arm}", name, *_contributed(tally))
    blocks = count(case.record.evidence.seen, "block") + (" of the last rollout" if case.past else "")
    title = Text.assemble(("Pods", "bold"), (f"  that contributed to {blocks}", "dim"))
    return Group(title, table, indented(_differing(case)))


def _differing(case: Case) -> Iterator[str]:
    """How stable's pods differ, beside what is assumed before any were measured, and what the self-check has shown."""
    seen = {metric: pod_spread(metric, case.record.evidence.pods[Arm.STABLE]) for metric in Metric}
    said = [
        f"{metric} {spread:.1f} {RATIOS[metric].unit} (assumed {RATIOS[metric].spread:g})"
        for metric, spread in seen.items()
        if spread is not None
    ]
    if said:
        yield f"stable's pods differ by {', '.join(said)}"
    if check := case.fleet.status.get("selfCheck"):
        alarms = count(check.get("falseAlarms", 0), "false alarm")
        yield f"{alarms} in {check.get('comparisons')} comparisons of halves of stable, at rest before the rollout"


def _contributed(tally: Tally) -> Iterator[str]:
    yield f"{tally.seconds / 60:.0f} min"
    yield f"{tally.http_requests:.0f} req"
    yield _form(acceptance_rate(tally), "{:.0%} acc")
    yield _form(tokens_per_step(tally), "{:.2f} t/step")
    yield _form(speed(tally), "{:.1f} t/s") if speed(tally) is not None else _form(step_time(tally), "{:.3f} s/step")


def _form(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else form.format(value)
