"""Daemons: they cannot outlive their parent, and say why they ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.process import Daemon, free_ports, wait_for

PARENT = """
import sys, time
from pathlib import Path
from harness.process import Daemon
daemon = Daemon("sleeper", ["sleep", "600"], Path(sys.argv[1]))
print(daemon.pid, flush=True)
time.sleep(600)
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_daemon_dies_with_its_killed_parent(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PARENT, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.send_signal(signal.SIGKILL)
    end = time.monotonic() + 10
    while is_running(pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert not is_running(pid)


def test_ended_daemon_shows_the_end_of_its_log(tmp_path: Path) -> None:
    daemon = Daemon("talker", ["sh", "-c", "seq 100; exit 3"], tmp_path / "log")
    with pytest.raises(HarnessError, match=r"(?s)talker ended with code 3.*\n  99\n  100$") as caught:
        wait_for("never", 10, lambda: False, daemon.check)
    assert "\n  50\n" not in str(caught.value)


def test_waiting_ends(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="no miracle after 0 s"):
        wait_for("miracle", 0, lambda: False, lambda: None)


def test_free_ports_differ() -> None:
    assert len(set(free_ports(20))) == 20
