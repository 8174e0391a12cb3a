"""Where the Kubernetes binaries come from: a folder that is given, PATH, the cache, or one compile."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness import cache
from harness.errors import HarnessError, say

VERSION = "1.37.2"
MINOR = VERSION.rpartition(".")[0]
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
ALL = ("localkube", *CONTROL_PLANE, "kube-scheduler", "kubelet", "kube-proxy")
SOURCES = Path(__file__).parents[1] / "localkube"
GO_HELP = "install Go 1.26 (https://go.dev/dl), or set SPECFLEET_KUBE_BIN to a folder with " + ", ".join(CONTROL_PLANE)


def ensure_kube(names: tuple[str, ...] = ALL) -> Path:
    """A folder with these binaries: $SPECFLEET_KUBE_BIN, else PATH, else the cache, else compiled into it."""
    if given := os.environ.get("SPECFLEET_KUBE_BIN"):
        return _given(Path(given), names)
    if on_path := _on_path(names):
        return on_path
    go = shutil.which("go")
    if go is None:
        raise HarnessError(f"no Kubernetes {MINOR} binaries on PATH, and no Go to build them: {GO_HELP}")
    return cache.folder("kube", source_key(go, SOURCES), lambda folder: _compile(go, folder))


def _given(folder: Path, names: Iterable[str]) -> Path:
    missing = [name for name in names if not os.access(folder / name, os.X_OK)]
    if missing:
        raise HarnessError(f"SPECFLEET_KUBE_BIN={folder} lacks {', '.join(missing)}; unset it to have them built")
    return folder.resolve()


def _on_path(names: Iterable[str]) -> Path | None:
    found = {name: Path(path).resolve() for name in names if (path := shutil.which(name))}
    if len(found) < len(list(names)) or not all(map(_fits, found.values(), found.keys())):
        return None

    def link(folder: Path) -> None:
        for name, path in found.items():
            (folder / name).symlink_to(path)

    return cache.folder("kubepath", cache.key([f"{n}={p}" for n, p in sorted(found.items())]), link)


def _fits(path: Path, name: str) -> bool:
    if not name.startswith("kube"):
        return True  # etcd: the API server takes any 3.x
    arguments = ["version", "--client"] if name == "kubectl" else ["--version"]
    shown = subprocess.run([path, *arguments], capture_output=True, text=True, check=False).stdout
    return re.search(rf"v{re.escape(MINOR)}\.", shown) is not None


def source_key(go: str, sources: Path) -> str:
    version = subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout
    files = sorted(p for p in sources.iterdir() if p.suffix in (".go", ".mod", ".sum"))
    return cache.key([version, os.uname().machine, VERSION, *files])


def _compile(go: str, folder: Path) -> None:
    say(
        f"Kubernetes {VERSION} with etcd is compiled once for this machine: 6 to 11 minutes on two cores, seconds if "
        f"Go's build cache has it; about 5 GB in that cache, 160 MB in {cache.root()}"
    )
    environment = {**os.environ, "CGO_ENABLED": "0"}
    run_go([go, "mod", "download"], environment, "downloading modules", GO_HELP)
    listing = subprocess.run(
        [go, "list", "-deps", "."], cwd=SOURCES, env=environment, capture_output=True, text=True, check=False
    )
    build = [go, "build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", _ldflags(), "-o", str(folder / "localkube")]
    run_go([*build, "."], environment, "compiling", GO_HELP, len(listing.stdout.split()))
    for name in ALL[1:]:
        (folder / name).symlink_to("localkube")


def _ldflags() -> str:
    major, minor, _ = VERSION.split(".")
    values = {"Version": f"v{VERSION}", "Major": major, "Minor": minor, "TreeState": "clean", "Commit": f"v{VERSION}"}
    return "-s -w " + " ".join(f"-X k8s.io/component-base/version.git{k}={v}" for k, v in values.items())


def run_go(command: list[str], environment: dict[str, str], what: str, help: str, total: int | None = None) -> None:
    """Run `go`, showing the time and the number of lines (packages) it has printed; `help` goes into an error."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, cwd=SOURCES, env=environment, stdout=log, stderr=log)
        try:
            for seconds in _ticks(process):
                done = _lines(log.fileno())
                _progress(f"{what}: {done}{f' of at most {total}' if total else ''} packages, {_clock(seconds)}")
        finally:
            process.kill()  # nothing to do when it has ended
            process.wait()
            if sys.stderr.isatty():
                say("")
        log.seek(0)
        output = log.read()
    if process.returncode != 0:
        end = "\n".join(output.splitlines()[-8:])
        hint = f"if Go is too old or has no network: {help}"
        raise HarnessError(f"'go {command[1]}' failed in {SOURCES}:\n{end}\n{hint}")


def _ticks(process: subprocess.Popen[bytes]) -> Iterator[float]:
    """Seconds since the start, every few seconds until the process ends."""
    start = time.monotonic()
    pause = 2.0 if sys.stderr.isatty() else 15.0
    while True:
        try:
            process.wait(pause)
            return
        except subprocess.TimeoutExpired:
            yield time.monotonic() - start


def _lines(descriptor: int) -> int:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0).count(b"\n")


def _clock(seconds: float) -> str:
    return f"{seconds // 60:.0f} min {seconds % 60:02.0f} s"


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K  {text}", end="", file=sys.stderr, flush=True)
    else:
        say(f"  {text}")
