"""How ages, counts and characters are written; the same everywhere, also where only ASCII can be shown. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from specfleet.rollout.world import timestamp

MINUTE, HOUR, DAY = 60, 3600, 86400

# One character for one, so that columns stay where they are. Tree guides have rich's own ASCII form.
_ASCII = str.maketrans("✔✖◌↓●◐○━┆│·→−–…≤≥×±", "+x.v*~o=!|.>--.<>x~")

# Escape sequences begin with one of these.
_CONTROLS = {code: "?" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}

# (below so many seconds, unit, smaller unit), as kubectl writes ages
_AGES = (
    (2 * MINUTE, 1, 0),
    (10 * MINUTE, MINUTE, 1),
    (3 * HOUR, MINUTE, 0),
    (8 * HOUR, HOUR, MINUTE),
    (2 * DAY, HOUR, 0),
    (8 * DAY, DAY, HOUR),
    (float("inf"), DAY, 0),
)
_UNITS = {1: "s", MINUTE: "m", HOUR: "h", DAY: "d"}


def age(seconds: float) -> str:
    """A span of time in at most two units: 95s, 2m10s, 3h, 2d4h. A clock that is behind reads 0s."""
    whole = max(0, int(seconds))
    unit, smaller = next((unit, smaller) for limit, unit, smaller in _AGES if whole < limit)
    rest = (whole % unit) // smaller if smaller else 0
    return f"{whole // unit}{_UNITS[unit]}" + (f"{rest}{_UNITS[smaller]}" if rest else "")


def since(time: str | None, now: float) -> str:
    """Age of an RFC 3339 time at `now`; empty where it cannot be read."""
    then = timestamp(time)
    return "" if then is None else age(now - then)


def count(number: int, what: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def elide(text: str, width: int) -> str:
    """`text` in at most `width` characters (at least 1), its middle left out where it is longer."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    tail = width - 1 - head
    return f"{text[:head]}…{text[len(text) - tail :]}"


def indented(lines: Iterable[str]) -> RenderableType:
    """Lines two columns in, also where they are folded."""
    table = Table.grid()
    table.add_column(width=2)
    table.add_column(overflow="fold")
    for line in lines:
        table.add_row("", Text(line))
    return table


def harmless(text: str) -> str:
    """Without what steers a terminal, or has no UTF-8, as a name of a file may."""
    return text.encode(errors="replace").decode().translate(_CONTROLS)


@dataclass(frozen=True, slots=True)
class Shown:
    """A renderable that any terminal can show: where only ASCII is possible, each other character is replaced, and
    always those that would steer it, since some of the text is what pods said."""

    inner: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.inner, options):
            if segment.control:
                yield segment
                continue
            text = harmless(segment.text)
            if options.ascii_only:
                text = text.translate(_ASCII).encode("ascii", "replace").decode()
            yield Segment(text, segment.style)
