"""Argo Rollouts, the peer measured in the same run: its controller from the Go module proxy, built once and cached."""

import io
import json
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from harness import cache
from harness.errors import HarnessError, say

MODULE = "github.com/argoproj/argo-rollouts"
VERSION = "v1.10.2"
LINKED = f"-s -w -X {MODULE}/utils/version.version={VERSION}"
PROGRAM = "rollouts-controller"
CRDS = "manifests/crds"


def ensure() -> Path:
    """A folder with `rollouts-controller` and the custom resource definitions in `manifests/crds`."""
    go = shutil.which("go")
    if go is None:
        raise HarnessError("Argo Rollouts is built here for the comparison: install Go 1.26 (https://go.dev/dl)")
    shown = subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout
    return cache.folder("argo-rollouts", cache.key([shown, VERSION]), lambda folder: _build(go, folder))


def _build(go: str, folder: Path) -> None:
    say(f"Argo Rollouts {VERSION} is built once for the comparison: about 4 minutes of CPU time")
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory)
        _unpack(go, source)
        _compile(go, source, folder / PROGRAM)
        shutil.copytree(source / CRDS, folder / CRDS)


def _unpack(go: str, folder: Path) -> None:
    """The module's source, with the Go version that it asks for lowered to the minor version's first; nothing else."""
    prefix = f"{MODULE}@{VERSION}/"
    with zipfile.ZipFile(io.BytesIO(_archive(go).read_bytes())) as archive:
        for name in archive.namelist():
            target = folder / name.removeprefix(prefix)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))
    manifest = folder / "go.mod"
    manifest.write_text(re.sub(r"^go (\d+\.\d+)\.\d+$", r"go \1.0", manifest.read_text(), flags=re.MULTILINE))


def _archive(go: str) -> Path:
    """The module's zip, which the command also leaves when it refuses the Go version that the module asks for."""
    command = [go, "mod", "download", "-json", f"{MODULE}@{VERSION}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tempfile.gettempdir())
    told: dict[str, Any] = json.loads(result.stdout or "{}")
    home = subprocess.run([go, "env", "GOMODCACHE"], capture_output=True, text=True, check=True).stdout.strip()
    path = Path(told.get("Zip") or Path(home, "cache/download", MODULE, "@v", f"{VERSION}.zip"))
    if not path.exists():
        raise HarnessError(f"{MODULE}@{VERSION} could not be downloaded: {told.get('Error') or result.stderr.strip()}")
    return path


def _compile(go: str, source: Path, program: Path) -> None:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=mod"}
    command = ["nice", "-n", "10", go, "build", "-trimpath", "-ldflags", LINKED, "-o", str(program), f"./cmd/{PROGRAM}"]
    result = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        end = "\n".join(result.stderr.splitlines()[-8:])
        raise HarnessError(f"'go build' of Argo Rollouts failed:\n{end}")
