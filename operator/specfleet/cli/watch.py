"""Looking again and again: in place on a terminal, a new block of text per change anywhere else."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from specfleet.cli.kubectl import KubectlError, Missing
from specfleet.cli.words import Shown

SECONDS = 2.0  # between two looks


@dataclass(frozen=True, slots=True)
class Look:
    """What one look showed; two looks with equal `mark` differ in nothing worth another block of text."""

    shown: RenderableType
    mark: object


class _Screen(Protocol):
    def show(self, look: Look) -> None:
        """The newest look."""

    def fail(self, why: str) -> None:
        """The look failed for now."""


def watch(
    look: Callable[[], Look], console: Console, sleep: Callable[[float], None], over: Callable[[], bool] = lambda: False
) -> None:
    """Show `look()` every 2 s until it is `over`, or Ctrl-C. What fails once is said and tried again, but for the first
    look and an SDD that is gone, which raise KubectlError."""
    first = look()
    try:
        if not console.is_terminal:
            _follow(look, first, _Log(console), sleep, over)
            return
        with Live(console=console, auto_refresh=False) as live:
            _follow(look, first, _Terminal(live), sleep, over)
    except KeyboardInterrupt:
        return


def _follow(
    look: Callable[[], Look], first: Look, screen: _Screen, sleep: Callable[[float], None], over: Callable[[], bool]
) -> None:
    screen.show(first)
    while not over():
        sleep(SECONDS)
        try:
            screen.show(look())
        except Missing:
            raise
        except KubectlError as error:
            screen.fail(str(error))


@dataclass(slots=True)
class _Terminal:
    live: Live
    last: RenderableType = ""

    def show(self, look: Look) -> None:
        self.last = look.shown
        self.live.update(look.shown, refresh=True)

    def fail(self, why: str) -> None:
        line = Shown(Text(f"\nas of the last look; trying again: {why}", "yellow"))
        self.live.update(Group(self.last, line), refresh=True)


@dataclass(slots=True)
class _Log:
    console: Console
    last: object = None

    def show(self, look: Look) -> None:
        if look.mark != self.last:
            if self.last is not None:
                self.console.print()
            self.console.print(look.shown)
        self.last = look.mark

    def fail(self, why: str) -> None:
        if why != self.last:
            self.console.print(Shown(Text(f"trying again: {why}")))
        self.last = why
