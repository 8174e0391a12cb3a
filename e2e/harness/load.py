"""A load generator that runs beside the scenario: what it has seen so far, and its end."""

import json
import os
import signal
import time
from pathlib import Path

from harness.loadreport import Report, read
from harness.process import Daemon

GRACE = 30  # seconds that a load generator waits for answers on their way


class Load:
    """A running load generator."""

    def __init__(self, daemon: Daemon, file: Path):
        self._daemon, self._file = daemon, file

    @property
    def report(self) -> Report:
        """What it has seen so far."""
        return read(self._file)

    def durations(self) -> dict[str, float | None]:
        """p50, p90 and p99 of the seconds from a request to the end of its answer."""
        found: dict[str, float | None] = json.loads(self._file.read_text())["e2e"]
        return found

    def started(self) -> bool:
        """It has written its first report."""
        return self._file.exists()

    def finish(self) -> Report | None:
        """Stop sending, wait for answers on their way, and return the whole report."""
        try:
            os.kill(self._daemon.pid, signal.SIGTERM)
            end = time.monotonic() + GRACE + 5
            while time.monotonic() < end and not (self._file.exists() and self.report.done):
                time.sleep(0.1)
        except ProcessLookupError:
            pass
        self._daemon.stop()
        return self.report if self._file.exists() else None
