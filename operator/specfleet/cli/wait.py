"""Waiting until the rollout of the current generation has settled, in sight or silently."""

from collections.abc import Callable

from rich.console import Console

from specfleet.cli.kubectl import KubectlError, Missing
from specfleet.cli.settle import Settling, settling
from specfleet.cli.watch import SECONDS, Look, watch
from specfleet.rollout.world import Raw


class Wait:
    """One wait of at most `limit` seconds by `clock`; `sleep` is never longer than what is left."""

    def __init__(self, limit: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._clock, self._sleep = clock, sleep
        self._until = clock() + limit
        self.state = Settling(None, "nothing was seen yet")

    def note(self, sdd: Raw) -> None:
        """Take in what the newest look saw."""
        self.state = settling(sdd)

    def over(self) -> bool:
        """It has settled, cannot, or the time is up."""
        return self.state.settled is not None or self._clock() >= self._until

    def sleep(self, seconds: float) -> None:
        """Sleep, but not past the end."""
        self._sleep(max(0.0, min(seconds, self._until - self._clock())))

    def watch(self, look: Callable[[], Look], console: Console) -> None:
        """Show each change until it is over; KeyboardInterrupt where the user left before."""
        watch(look, console, self.sleep, self.over)
        if not self.over():
            raise KeyboardInterrupt

    def quietly(self, look: Callable[[], Look]) -> Look:
        """The last look; what fails in between is tried again. Raises KubectlError as `watch` does."""
        last = look()
        while not self.over():
            self.sleep(SECONDS)
            try:
                last = look()
            except Missing:
                raise
            except KubectlError as error:
                self.state = Settling(None, f"an answer: {error}")
        return last
