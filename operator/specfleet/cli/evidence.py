"""Metrics with their intervals, the last decisions and notes, as lines. Pure."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from specfleet.cli.interval import LEGEND, bar
from specfleet.cli.words import count, since
from specfleet.rollout.world import Raw

KEPT = 5  # decisions that are shown
_STYLES = {"NonInferior": "green", "Regression": "red", "Inconclusive": "yellow"}
_UNITS = {"percent": "%"}


def metrics(judged: Sequence[Raw], width: int) -> RenderableType:
    """Each metric on one line if all fit into `width`, else what was found on a second line."""
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
    return Group(Text.assemble(("Metrics", "bold"), (f"  {LEGEND}", "dim")), table)


def _second(margin: Text, found: Sequence[Text]) -> tuple[Text, Text]:
    outcome, blocks = found
    return Text.assemble(outcome, "  ", blocks), margin


def _row(item: Raw) -> tuple[Text, ...]:
    """Name, bar, numbers (or what is missing), margin, outcome, blocks."""
    estimate, lower, upper, margin = (_number(item.get(key)) for key in ("estimate", "lower", "upper", "margin"))
    name, outcome, unit = str(item.get("name", "")), str(item.get("outcome", "")), str(item.get("unit", ""))
    unit = f" {_UNITS.get(unit, unit)}".rstrip()
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


def _number(text: object) -> float | None:
    """A printed number; None where there is none, so that nothing is drawn for it."""
    try:
        return float(str(text))
    except ValueError:
        return None


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
