"""What the demos share: a story with its checks, and a command that ends by itself and says how it went."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from harness.command import completed
from harness.fleet import Fleet
from harness.stage import Stage


@dataclass(slots=True)
class Story:
    """What is watched, and what did not happen as it should."""

    stage: Stage
    fleet: Fleet
    failed: list[str] = field(default_factory=list)

    def check(self, holds: bool, what: str) -> None:
        """One thing that must have happened, as seen from outside."""
        print(f"          {'✓' if holds else '✗'} {what}", flush=True)
        if not holds:
            self.failed.append(what)

    def verdict(self) -> int:
        """The last line, and the exit code."""
        print("\nIt happened as it should." if not self.failed else f"\nFAILED: {'; '.join(self.failed)}")
        return 1 if self.failed else 0


def command(name: str, about: str | None, run: Callable[[], int]) -> NoReturn:
    """Run a demo as a command without arguments."""
    argparse.ArgumentParser(description=about).parse_args()
    sys.exit(completed(name, run))
