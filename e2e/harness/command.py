"""How a demo or a benchmark ends as a command: failed or interrupted, all is stopped, and a line says why."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, TypeVar

from harness.errors import HarnessError

Found = TypeVar("Found")


def completed(name: str, run: Callable[[], Found]) -> Found:
    """What `run` returns; the process ends, with a line of its reason, if it cannot."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    try:
        return run()
    except HarnessError as error:
        sys.exit(f"{name}: {error}")
    except KeyboardInterrupt:
        sys.exit(f"{name}: interrupted; everything is stopped")


def _interrupted(_: int, __: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
