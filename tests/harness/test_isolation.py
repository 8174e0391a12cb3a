"""Which leftovers are stale: those of dead runs, never those of live ones or of somebody else."""

import os
import subprocess
from pathlib import Path

import pytest

from harness import isolation


def test_only_names_of_dead_processes_are_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    for name in (f"specfleet-{ended.pid}", f"specfleet-{os.getpid()}", "specfleet-mine", "other"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(isolation, "NETNS", tmp_path)
    monkeypatch.setattr(isolation, "hierarchies", list)
    assert list(isolation.stale()) == [f"specfleet-{ended.pid}"]
