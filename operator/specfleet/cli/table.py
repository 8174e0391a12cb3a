"""Every SpecDecodeDeployment of a namespace, a line each, and under them what the restless ones wait for. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from specfleet.api.reasons import named
from specfleet.cli.fleet import Fleet
from specfleet.cli.words import Shown, since
from specfleet.rollout.world import Raw

# The columns as `kubectl get sdd` has them, and those that go first where the terminal is narrow.
_COLUMNS = ("NAME", "READY", "REASON", "MODEL", "STABLE", "CANARY", "WEIGHT", "K", "ACCEPT", "REPLICAS", "AGE")
_GO_FIRST = ("MODEL", "STABLE", "ACCEPT", "CANARY")
_GAP = 2
_QUIET = ("Stable", "ScaledToZero")


@dataclass(frozen=True, slots=True)
class _View:
    fleets: tuple[Fleet, ...]
    sdds: tuple[Raw, ...]
    now: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        rows = [_row(fleet, sdd, self.now) for fleet, sdd in zip(self.fleets, self.sdds, strict=True)]
        yield _table(rows, options.max_width)
        if waiting := [fleet for fleet in self.fleets if fleet.message and fleet.reason not in _QUIET]:
            yield Text("")
            yield from (Text.assemble((fleet.name, _style(fleet)), f": {fleet.message}") for fleet in waiting)


def table(fleets: Sequence[Fleet], sdds: Sequence[Raw], now: float) -> Shown:
    """A line for each of `fleets`, which were made of `sdds`, at `now` (seconds since the epoch)."""
    return Shown(_View(tuple(fleets), tuple(sdds), now))


def _table(rows: Sequence[dict[str, Text]], width: int) -> Table:
    columns = list(_COLUMNS)
    sizes = {name: max(len(name), *(row[name].cell_len for row in rows)) + _GAP for name in _COLUMNS}
    for name in _GO_FIRST:
        if sum(sizes[column] for column in columns) > width:
            columns.remove(name)
    shown = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for name in columns:
        shown.add_column(name, overflow="fold")
    for row in rows:
        shown.add_row(*(row[name] for name in columns))
    return shown


def _row(fleet: Fleet, sdd: Raw, now: float) -> dict[str, Text]:
    status = fleet.status
    told = {
        "MODEL": status.get("model"),
        "STABLE": (status.get("stable") or {}).get("revision"),
        "CANARY": (status.get("canary") or {}).get("revision"),
        "WEIGHT": status.get("weight"),
        "K": status.get("proposalLength"),
        "ACCEPT": status.get("acceptance"),
        "REPLICAS": status.get("ready"),
        "AGE": since(sdd["metadata"].get("creationTimestamp"), now),
    }
    style = _style(fleet)
    first = {"NAME": Text(fleet.name), "READY": Text(fleet.ready, style), "REASON": Text(fleet.reason or "-", style)}
    return first | {name: Text(str(value or "-")) for name, value in told.items()}


def _style(fleet: Fleet) -> str:
    reason = named(fleet.reason)
    if fleet.stalled or fleet.ready == "False":
        return "red"
    return "yellow" if fleet.ready != "True" or (reason and reason.kind == "wait") else "green"
