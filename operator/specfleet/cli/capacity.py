"""What each step of a rollout takes, as a table: pods of both arms, accelerators, what stable lends. Pure."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from specfleet.cli.words import count
from specfleet.rollout.world import Raw


def plan(rows: Sequence[Raw], title: str, step: int = 0) -> RenderableType:
    """Rows as in `status.canary.plan`; `step` is the number, from 1, of the one that the canary stands at."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(4):
        table.add_column(no_wrap=True)
    for number, row in enumerate(rows, 1):
        symbol, style = ("✔", "green") if number < step else ("●", "cyan") if number == step else ("○", "dim")
        table.add_row(Text.assemble("  ", (symbol, style), f" {_asked(row)}"), *(Text(cell) for cell in _cells(row)))
    most = max((int(row.get("accelerators", 0)) for row in rows), default=0)
    return Group(Text.assemble((title, "bold"), (f"  at most {count(most, 'accelerator')} at once", "dim")), table)


def standing(step: Raw, rows: Sequence[Raw]) -> int:
    """The number of the row that `status.step` means, 0 where there is none."""
    return len(rows) if step.get("askedWeight") == "100%" else int(step.get("index", 0))


def _asked(row: Raw) -> str:
    reachable = f", reachable {row['reachable']}" if row.get("reachable") else ""
    return f"{row.get('asked')}{reachable}"


def _cells(row: Raw) -> tuple[str, str, str]:
    lends = int(row.get("lends", 0))
    pods = f"{row.get('canary')} canary + {row.get('stable')} stable"
    return pods, f"up to {row.get('accelerators')} in use", f"stable lends {count(lends, 'pod')}" if lends else ""
