"""The operator as the process that a user runs, with its log, its memory and its HTTP server."""

import os
import re
import signal
import sys
import time
import urllib.request
from pathlib import Path
from typing import Self

from harness.controlplane import ControlPlane
from harness.errors import HarnessError
from harness.process import Daemon, tail
from simserver import free_port


class OperatorProcess:
    """Watches one namespace and keeps its Lease there. Leave the context to have it gone."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path, *flags: str) -> None:
        self.namespace, self._flags = namespace, flags
        self._plane, self._folder = plane, folder
        self._logs: list[Path] = []
        self.start()

    def start(self) -> None:
        """A new process under the same name, as after a restart of the container."""
        self._port = free_port()
        self._logs.append(self._folder / f"operator-{self.namespace}-{len(self._logs)}.log")
        module = [sys.executable, "-m", "specfleet.controller.app", "--listen", f"127.0.0.1:{self._port}"]
        scope = ["--watch-namespace", self.namespace, "--lease-namespace", self.namespace]
        environment = {**os.environ, "KUBECONFIG": str(self._plane.kubeconfig), "POD_NAME": "specfleet-0"}
        self._process = Daemon("operator", [*module, *scope, *self._flags], self._logs[-1], environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.stop()

    def terminate(self, seconds: float) -> str:
        """SIGTERM; how it ended, empty if it has not within so many seconds."""
        os.kill(self._process.pid, signal.SIGTERM)
        return self.ended(seconds)

    def ended(self, seconds: float) -> str:
        """How it has ended by itself, empty if it has not within so many seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                self.check()
            except HarnessError as ended:
                return str(ended)
            time.sleep(0.05)
        return ""

    def check(self) -> None:
        """Raise, with the end of its log, if it has ended."""
        self._process.check()

    def healthy(self, seconds: float) -> bool:
        """Whether /healthz says 200 within so many seconds."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/healthz", timeout=seconds) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    @property
    def peak_megabytes(self) -> float:
        """The most memory that it has ever held."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found
        return int(found[1]) / 1024

    @property
    def log(self) -> str:
        """All that it has logged, over its restarts."""
        return "".join(path.read_text(errors="replace") for path in self._logs)

    def log_end(self) -> str:
        """The last lines of its log."""
        return tail(self._logs[-1], 30)
