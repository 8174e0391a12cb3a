"""How a benchmark runs as a command: where it fails or is interrupted, all is stopped, and a line says why."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, TypeVar

from harness.errors import HarnessError

Found = TypeVar("Found")


def completed(name: str, measure: Callable[[], Found]) -> Found:
    """What `measure` returns; the process ends, with a line of its reason, if it cannot."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    try:
        return measure()
    except HarnessError as error:
        sys.exit(f"{name}: {error}")
    except KeyboardInterrupt:
        sys.exit(f"{name}: interrupted; everything is stopped")


def _interrupted(_: int, __: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
