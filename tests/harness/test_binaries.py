"""Where binaries come from, and what is said when they cannot come."""

import shutil
from pathlib import Path

import pytest

from harness import binaries
from harness.errors import HarnessError


@pytest.fixture(autouse=True)
def _own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPECFLEET_KUBE_BIN", raising=False)


def program(folder: Path, name: str, says: str = "") -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\necho '{says}'\n")
    (folder / name).chmod(0o755)


def test_given_folder_is_taken_or_its_gaps_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("etcd", "kubectl", "kube-apiserver"):
        program(tmp_path / "given", name)
    monkeypatch.setenv("SPECFLEET_KUBE_BIN", str(tmp_path / "given"))
    with pytest.raises(HarnessError, match="lacks kube-controller-manager"):
        binaries.ensure_kube(binaries.CONTROL_PLANE)
    program(tmp_path / "given", "kube-controller-manager")
    assert binaries.ensure_kube(binaries.CONTROL_PLANE) == tmp_path / "given"


def test_path_is_taken_when_the_minor_version_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in binaries.CONTROL_PLANE:
        program(tmp_path / "bin", name, f"Client Version: v{binaries.MINOR}.0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}")
    folder = binaries.ensure_kube(binaries.CONTROL_PLANE)
    assert (folder / "etcd").resolve() == tmp_path / "bin/etcd"


def test_other_version_on_path_and_no_go_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in binaries.CONTROL_PLANE:
        program(tmp_path / "bin", name, "Kubernetes v1.19.0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}")
    with pytest.raises(HarnessError, match="install Go"):
        binaries.ensure_kube(binaries.CONTROL_PLANE)


@pytest.mark.skipif(shutil.which("go") is None, reason="the key holds Go's version")
def test_key_changes_with_the_sources(tmp_path: Path) -> None:
    go = shutil.which("go") or ""
    shutil.copytree(binaries.SOURCES, tmp_path / "sources")
    before = binaries.source_key(go, tmp_path / "sources")
    assert before == binaries.source_key(go, binaries.SOURCES)
    with open(tmp_path / "sources/main.go", "a") as file:
        file.write("// edited\n")
    assert binaries.source_key(go, tmp_path / "sources") != before
