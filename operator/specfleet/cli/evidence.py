"""Metrics with their intervals, the last decisions and notes, as lines. Pure."""

import math
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from specfleet.cli.interval import LEGEND, bar
from specfleet.cli.replay import PastLook
from specfleet.cli.words import count, since
from specfleet.judgement.verdict import Metric, MetricVerdict, Outcome
from specfleet.rollout.judged import metric
from specfleet.rollout.world import Raw

KEPT = 5  # decisions that are shown
ARMS = "canary minus stable"
_STYLES = {"NonInferior": "green", "Regression": "red", "Inconclusive": "yellow"}


def metrics(judged: Sequence[Raw], width: int, dropped: str = "", arms: str = ARMS) -> RenderableType:
    """Each metric on one line if all fit into `width`, else what was found on a second line; under them how much longer
    they take, and what was `dropped`. `arms` says what is compared with what."""
    rows = [_row(item) for item in judged]
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    wide = sum(max(cell.cell_len for cell in column) + 2 for column in zip(*rows, strict=True)) + 2 <= width
    for name, line, numbers, margin, *found in rows:
        label = Text("  ") + name
        if wide:
            table.add_row(label, line, numbers, margin, *found)
        else:
            table.add_row(label, line, numbers)
            table.add_row("", *_second(margin, found))
    return Group(Text.assemble(("Metrics", "bold"), (f"  {arms}, {LEGEND}", "dim")), table, *_beside(judged, dropped))


def _beside(judged: Sequence[Raw], dropped: str) -> Iterator[RenderableType]:
    takes = [f"{item.get('name')} {item['timeToDecision']}" for item in judged if item.get("timeToDecision")]
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    if takes:
        table.add_row(Text("  to go", "dim"), f"{'; '.join(takes)} (at this traffic)")
    if dropped:
        table.add_row(Text("  left out", "dim"), dropped)
    if takes or dropped:
        yield table


def _second(margin: Text, found: Sequence[Text]) -> tuple[Text, Text]:
    outcome, blocks = found
    return Text.assemble(outcome, "  ", blocks), margin


def _row(item: Raw) -> tuple[Text, ...]:
    """Name, bar, numbers (or what is missing), margin, outcome, blocks."""
    estimate, lower, upper, margin = (_number(item.get(key)) for key in ("estimate", "lower", "upper", "margin"))
    name, outcome, unit = str(item.get("name", "")), str(item.get("outcome", "")), str(item.get("unit", ""))
    unit = f" {unit}".rstrip()
    style = _STYLES.get(outcome, "dim")
    if estimate is None or lower is None or upper is None:
        numbers = Text(str(item.get("message", "")).removeprefix(f"{name}: "), "dim")
    else:
        numbers = Text(f"{estimate:+.1f}{unit} [{lower:+.1f}, {upper:+.1f}]")
    blocks = item.get("blocks")
    return (
        Text(name),
        bar(lower, estimate, upper, margin, style),
        numbers,
        Text("" if margin is None else f"margin {margin:g}{unit.removesuffix('s') if margin == 1 else unit}", "dim"),
        Text(outcome, style),
        Text("" if blocks is None else count(int(blocks), "block"), "dim"),
    )


def course(looks: Sequence[PastLook]) -> RenderableType:
    """How each metric went: a line for each look that found an interval, else why the last one did not."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for column in range(4):
        table.add_column(justify="right" if column == 1 else "left", overflow="fold")
    for name in Metric:
        found = [(look.blocks, item) for look in looks for item in look.verdict.metrics if item.metric is name]
        known = [(blocks, item) for blocks, item in found if item.estimate is not None]
        held = [(blocks, item) for blocks, item in found[-1:] if item.outcome is not Outcome.NOT_COMPARABLE]
        for index, (blocks, item) in enumerate(known or held):
            table.add_row(f"  {name}" if not index else "", f"block {blocks}:", *_seen(item))
    legend = "earlier looks replayed with the pods' shares of now" if len(looks) > 1 else ""
    return Group(Text.assemble(("How it went", "bold"), (f"  {legend}", "dim")), table)


def _seen(item: MetricVerdict) -> tuple[Text, Text]:
    row = _row(metric(item))
    return row[2], row[4]


def _number(text: object) -> float | None:
    """A printed number; None where there is none, so that nothing is drawn for it."""
    try:
        number = float(str(text)) + 0.0  # there is no difference of -0.0
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def decisions(decided: Sequence[Raw], now: float) -> RenderableType:
    """The newest first, each with its age, its reason and the numbers."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for item in decided[:KEPT]:
        age = Text(f"  {since(item.get('time'), now)}", "dim")
        table.add_row(age, Text(str(item.get("reason", "")), "bold"), Text(str(item.get("message", ""))))
    return Group(Text("Decisions", style="bold"), table)


def notes(said: Sequence[str]) -> RenderableType:
    """What a reader should know, one point each."""
    table = Table.grid(padding=(0, 1, 0, 0))
    for note in said:
        table.add_row(Text("  -", "yellow"), Text(note))
    return Group(Text("Notes", style="bold"), table)
