"""Cached folders: keyed by content, built once, never half done."""

import threading
from pathlib import Path

import pytest

from harness import cache


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "a.py").write_text("a")
    (folder / "b.py").write_text("b")
    return folder


def test_key_follows_content_name_and_executable_bit(sources: Path) -> None:
    seen = [cache.key([sources])]
    (sources / "a.py").write_text("A")
    seen.append(cache.key([sources]))
    (sources / "a.py").rename(sources / "c.py")
    seen.append(cache.key([sources]))
    (sources / "c.py").chmod(0o755)
    seen.append(cache.key([sources]))
    assert len(set(seen)) == len(seen)


def test_key_ignores_byte_code_and_times(sources: Path) -> None:
    before = cache.key([sources, "v1"])
    (sources / "__pycache__").mkdir()
    (sources / "__pycache__/a.pyc").write_bytes(b"x")
    (sources / "a.py").write_text("a")
    assert cache.key([sources, "v1"]) == before
    assert cache.key([sources, "v2"]) != before


def test_parts_do_not_run_into_each_other() -> None:
    assert cache.key(["ab", "c"]) != cache.key(["a", "bc"])


def test_builds_once() -> None:
    builds: list[Path] = []

    def build(folder: Path) -> None:
        builds.append(folder)
        (folder / "file").write_text("content")

    assert cache.folder("kind", "1", build) == cache.folder("kind", "1", build)
    assert len(builds) == 1
    assert (cache.root() / "kind-1/file").read_text() == "content"


def test_failed_build_leaves_nothing() -> None:
    def build(folder: Path) -> None:
        (folder / "file").write_text("half")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        cache.folder("kind", "1", build)
    assert [p.name for p in cache.root().iterdir()] == ["kind.lock"]


def test_second_run_waits_for_the_first_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    started, waiting, finish, builds, said = threading.Event(), threading.Event(), threading.Event(), [], []

    def build(folder: Path) -> None:
        builds.append(folder)
        started.set()
        assert finish.wait(60)

    def say(text: str) -> None:
        said.append(text)
        waiting.set()

    monkeypatch.setattr(cache, "say", say)
    first = threading.Thread(target=cache.folder, args=("kind", "1", build))
    second = threading.Thread(target=cache.folder, args=("kind", "1", build))
    first.start()
    assert started.wait(60)
    second.start()
    assert waiting.wait(60)
    finish.set()
    first.join()
    second.join()
    assert "another run is making 'kind'" in said[0]
    assert len(builds) == 1
