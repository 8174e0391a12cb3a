"""The images of the tests, as OCI archives built here: what is in each, and how it starts."""

import json
import os
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import cache, layers, nodeconfig, oci
from harness.errors import HarnessError

PROJECT = Path(__file__).parents[2]
LOCK = PROJECT / "requirements.lock"
SIMULATOR = "usr/local/lib/vllm-sim"
PYTHON = {
    "Env": [
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONUNBUFFERED=1",
        "PYTHONDONTWRITEBYTECODE=1",
        "LANG=C.UTF-8",
        "HOME=/tmp",  # any user may write there
    ]
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """An image: its default tag, its layers (archives, lowest first) and OCI configuration."""

    tag: str
    layers: Callable[[], list[Path]]
    config: dict[str, Any]


def build(kind: str, version: str | None = None) -> Path:
    """The archive of an image (a key of `RECIPES`) under the name `reference(kind, version)`, built if need be."""
    return archive(reference(kind, version), RECIPES[kind])


def archive(name: str, recipe: Recipe) -> Path:
    """The archive of a recipe under a name, built if need be."""
    files = recipe.layers()

    def write(folder: Path) -> None:
        oci.write_archive(folder / "image.tar", name, files, recipe.config)

    parts = [name, json.dumps(recipe.config), *(file.parent.name for file in files)]
    kind = name.rpartition("/")[2].partition(":")[0]
    return cache.folder(f"image-{kind}", cache.key(parts), write) / "image.tar"


def reference(kind: str, version: str | None = None) -> str:
    """The name under which a pod asks for it."""
    return f"specfleet.dev/{kind}:{version or RECIPES[kind].tag}"


def _pause() -> list[Path]:
    source = PROJECT / "images/pause/main.go"

    def fill(root: Path) -> None:
        go = shutil.which("go")
        if go is None:
            raise HarnessError("no Go on PATH to build the pods' pause program: install Go (https://go.dev/dl)")
        command = [go, "build", "-trimpath", "-ldflags=-s -w", "-o", str(root / "pause"), source.name]
        layers.run(command, cwd=source.parent, env={**os.environ, "CGO_ENABLED": "0", "GO111MODULE": "off"})

    return [layers.layer("pause", [source, os.uname().machine], fill)]


def _python() -> list[Path]:
    return [layers.python()]


def _operator() -> list[Path]:
    with open(PROJECT / "pyproject.toml", "rb") as file:
        dependencies = tomllib.load(file)["project"]["dependencies"]
    source = PROJECT / "operator/specfleet"
    return [layers.python(), layers.packages("operator", dependencies, LOCK), _specfleet(source)]


def _specfleet(source: Path) -> Path:
    return layers.code("specfleet", [source], lambda root: _copy(source, root / layers.SITE / "specfleet"))


def _vllm_sim() -> list[Path]:
    source = PROJECT / "images/vllm-sim"

    def fill(root: Path) -> None:
        _copy(source, root / SIMULATOR)
        (root / "usr/local/bin").mkdir()
        (root / "usr/local/bin/vllm").symlink_to(f"/{SIMULATOR}/vllm")

    package = _specfleet(PROJECT / "operator/specfleet")
    packages = layers.packages("vllm-sim", ["aiohttp"], LOCK)
    return [layers.python(), packages, package, layers.code("vllm-sim", [source], fill)]


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "Dockerfile"))


RECIPES = {
    "pause": Recipe(nodeconfig.PAUSE.rpartition(":")[2], _pause, {"Entrypoint": ["/pause"]}),
    "python": Recipe("dev", _python, {**PYTHON, "Cmd": ["python3"]}),
    "operator": Recipe(
        "dev",
        _operator,
        {
            **PYTHON,
            "User": f"{layers.NONROOT}:{layers.NONROOT}",
            "Entrypoint": ["python3", "-m", "specfleet.controller.app"],
        },
    ),
    "vllm-sim": Recipe("v0.32.0", _vllm_sim, {**PYTHON, "Entrypoint": ["vllm"], "Cmd": ["--help"]}),
}
