"""Folders that are expensive to make: built once under a key, by one run at a time, never seen half done."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from harness.errors import say

KEEP = 3  # folders of one kind
KEEP_SECONDS = 3600.0  # whatever their number: another run may be using them


def root() -> Path:
    """The cache of this user: `$XDG_CACHE_HOME/specfleet`, by default `~/.cache/specfleet`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "specfleet"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def key(parts: Iterable[bytes | str | Path]) -> str:
    """16 hex digits of the parts in order: a text or bytes by value, a file by its content, a folder by its files."""
    digest = hashlib.sha256()
    for part in parts:
        for chunk in _chunks(part):
            digest.update(len(chunk).to_bytes(8, "big") + chunk)
    return digest.hexdigest()[:16]


def _chunks(part: bytes | str | Path) -> Iterator[bytes]:
    if isinstance(part, Path) and part.is_dir():
        for path in sorted(p for p in part.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
            yield str(path.relative_to(part)).encode()
            yield path.read_bytes()
            yield b"x" if os.access(path, os.X_OK) else b"-"
    elif isinstance(part, Path):
        yield part.read_bytes()
    else:
        yield part.encode() if isinstance(part, str) else part


def folder(kind: str, digest: str, build: Callable[[Path], None]) -> Path:
    """The folder `kind-digest`, made by `build(empty folder)` unless it is there; a second run waits for the first."""
    path = root() / f"{kind}-{digest}"
    if not path.is_dir():
        with _lock(kind):
            if not path.is_dir():
                _build(path, build)
                _prune(kind, path)
    with contextlib.suppress(PermissionError):  # a cache that somebody else owns
        os.utime(path)
    return path


@contextlib.contextmanager
def _lock(kind: str) -> Iterator[None]:
    with open(root() / f"{kind}.lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another run is making '{kind}' in {root()}: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(path: Path, build: Callable[[Path], None]) -> None:
    for stale in path.parent.glob(f".{path.name}.*"):  # we hold the lock: nobody is writing it
        shutil.rmtree(stale, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        temporary.chmod(0o755)
        build(temporary)
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _prune(kind: str, current: Path) -> None:
    found = [p for p in root().glob(f"{kind}-*") if p.name.removeprefix(f"{kind}-").isalnum() and p != current]
    found.sort(key=lambda p: p.stat().st_mtime, reverse=True)
    for old in found[KEEP - 1 :]:
        if time.time() - old.stat().st_mtime > KEEP_SECONDS:
            shutil.rmtree(old, ignore_errors=True)
