"""Starts daemons that cannot outlive this process, and tells why one ended."""

import collections
import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from harness.debian import need
from harness.errors import HarnessError

# The parent may have died before the kernel was told to watch it.
STILL_OURS = '[ "$PPID" = "$0" ] && exec "$@"'
TAIL = 8  # lines of a dead daemon's log that go into the error


class Daemon:
    """A process with its log in a file; the kernel kills it when the thread that started it ends."""

    def __init__(self, name: str, command: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None):
        self.name, self.log = name, log
        guard = [need("setpriv", "util-linux"), "--pdeathsig", "KILL", "sh", "-c", STILL_OURS, str(os.getpid())]
        with open(log, "wb") as output:
            self._process = subprocess.Popen(
                [*guard, *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,  # Ctrl-C reaches us first, and we end it
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raise, with the last lines of the log, if the process has ended."""
        if (code := self._process.poll()) is not None:
            raise HarnessError(f"{self.name} ended with code {code}; the end of {self.log}:\n{tail(self.log)}")

    def stop(self) -> None:
        """Kill and reap: what these daemons write is thrown away, so no grace is needed."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Cleaning up is not cut short by a second Ctrl-C: signals wait until it is done."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def tail(log: Path, lines: int = TAIL) -> str:
    with open(log, errors="replace") as file:
        return "".join(f"  {line}" for line in collections.deque(file, lines)).rstrip()


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that are free now, below the range from which the kernel hands out client ports."""
    found: list[int] = []
    for port in random.sample(range(20000, 32000), 500):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise HarnessError("no free port between 20000 and 32000 on 127.0.0.1")


def wait_for(what: str, seconds: float, ready: Callable[[], bool], check: Callable[[], None]) -> None:
    """Poll `ready` until it is true; `check` raises when waiting is in vain."""
    end = time.monotonic() + seconds
    while not ready():
        check()
        if time.monotonic() > end:
            raise HarnessError(f"no {what} after {seconds:.0f} s")
        time.sleep(0.05)
