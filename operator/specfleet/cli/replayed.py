"""A replay as text: every look of the judge, the last one as bars, and how it ends. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from specfleet.cli.evidence import metrics
from specfleet.cli.replay import PastLook
from specfleet.cli.words import Shown, count
from specfleet.judgement.judge import Policy
from specfleet.judgement.verdict import Metric, MetricVerdict, Outcome
from specfleet.rollout.judged import metric, time_to_decision

PROVEN, REGRESSED, UNDECIDED = 0, 4, 5  # exit statuses; 1 is bad input, 2 wrong usage
_SYMBOLS = {
    Outcome.NON_INFERIOR: ("✔", "green"),
    Outcome.REGRESSION: ("✖", "red"),
    Outcome.INCONCLUSIVE: ("◌", "yellow"),
}
_GAP = 2


@dataclass(frozen=True, slots=True)
class Replay:
    """What was judged again. `arms` says what is compared with what, `source` what earlier looks were made of."""

    title: str
    arms: str
    source: str
    looks: tuple[PastLook, ...]
    policy: Policy
    block_seconds: float
    dropped: str = ""

    @property
    def regressed(self) -> PastLook | None:
        """The first look at which a canary would have had to leave."""
        return next((look for look in self.looks if look.verdict.regression), None)

    @property
    def status(self) -> int:
        """The exit status."""
        if self.regressed:
            return REGRESSED
        return PROVEN if self.looks and self.looks[-1].verdict.proven else UNDECIDED


@dataclass(frozen=True, slots=True)
class _View:
    replay: Replay

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield from _sections(self.replay, options.max_width)


def shown(replay: Replay) -> Shown:
    """The whole replay."""
    return Shown(_View(replay))


def _sections(replay: Replay, width: int) -> Iterator[RenderableType]:
    blocks = replay.looks[-1].blocks if replay.looks else 0
    yield Text.assemble((replay.title, "bold"), f"  {count(blocks, 'block')} of {replay.block_seconds:g} s")
    if replay.looks:
        yield Group("", _looks(replay, width))
        last = [metric(item, _left(replay, item)) for item in replay.looks[-1].verdict.metrics]
        yield Group("", metrics(last, width, replay.dropped, replay.arms))
    elif replay.dropped:
        yield Text(f"left out: {replay.dropped}")
    yield Group("", _end(replay))


def _left(replay: Replay, item: MetricVerdict) -> str:
    return time_to_decision(item, replay.looks[-1].blocks, replay.policy.max_blocks, replay.block_seconds) or ""


def _looks(replay: Replay, width: int) -> RenderableType:
    """A line for each look, a column for each metric that was compared at any; as many tables as the width needs."""
    judged = [item.metric for item in replay.looks[-1].verdict.metrics]  # the same at every look
    told = [name for name in judged if any(look.verdict.of(name).estimate is not None for look in replay.looks)]
    cells = {name: [_cell(look.verdict.of(name)) for look in replay.looks] for name in told}
    heads = {name: f"{name}, {replay.looks[-1].verdict.of(name).unit}" for name in told}
    sizes = {name: max(len(heads[name]), *(cell.cell_len for cell in cells[name])) + _GAP for name in told}
    legend = f"✔ NonInferior  ✖ Regression  ◌ Inconclusive{f'; {replay.source}' if replay.source else ''}"
    parts: list[RenderableType] = [Text.assemble(("Looks", "bold"), (f"  {legend}", "dim"))]
    for group in _groups(told, sizes, width - 2 - len("block") - _GAP):
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("  block", justify="right", no_wrap=True)
        for name in group:
            table.add_column(heads[name], no_wrap=True)
        for index, look in enumerate(replay.looks):
            table.add_row(str(look.blocks), *(cells[name][index] for name in group))
        parts.append(table)
    if not told:
        parts.append(Text("  none of them could say anything yet"))
    return Group(*parts)


def _groups(told: Sequence[Metric], sizes: dict[Metric, int], width: int) -> Iterator[list[Metric]]:
    group: list[Metric] = []
    for name in told:
        if group and sum(sizes[item] for item in [*group, name]) > width:
            yield group
            group = []
        group.append(name)
    if group:
        yield group


def _cell(item: MetricVerdict) -> Text:
    if item.estimate is None or item.lower is None or item.upper is None:
        return Text(f"· {item.outcome}", "dim")
    symbol, style = _SYMBOLS[item.outcome]
    estimate, lower, upper = (round(value, 1) + 0.0 for value in (item.estimate, item.lower, item.upper))
    return Text.assemble((symbol, style), f" {estimate:+.1f} [{lower:+.1f}, {upper:+.1f}]")


def _end(replay: Replay) -> Text:
    """What the judge makes of it: what a rollout would have been told."""
    if (look := replay.regressed) and (regression := look.verdict.regression):
        return Text(f"✖ Regression at block {look.blocks}: {regression.message}", "red")
    if not replay.looks:
        return Text("◌ not decided: no block of evidence", "yellow")
    last = replay.looks[-1].verdict
    if last.proven:
        since = next(look.blocks for look in replay.looks if look.verdict.proven)
        return Text(f"✔ proven: every compared metric is above minus its margin, first at block {since}", "green")
    return Text(f"◌ not decided: {last.holding}", "yellow")
