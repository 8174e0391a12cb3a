"""Debian packages as a source of programs: unpacked into a folder, or installed when a basic tool is missing."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from harness.errors import HarnessError, say


def need(program: str, package: str) -> str:
    """Path of a basic program; its Debian package is installed when it is missing and we may."""
    if shutil.which(program) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        say(f"'{program}' is missing: apt-get install {package}")
        _ensure_lists()
        _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", package])
    if path := shutil.which(program):
        return path
    raise HarnessError(f"'{program}' is not on PATH: install it (Debian: apt-get install {package})")


def closure(packages: Iterable[str], skip: str) -> list[str]:
    """The packages and all that they depend on (the first of alternatives), without those that match `skip`."""
    _ensure_lists()
    wanted: set[str] = set()
    found = set(packages)
    while found:
        wanted |= found
        found = {name for name in _depends(found) if not re.fullmatch(skip, name)} - wanted
    return sorted(wanted)


def release() -> str:
    """Names the distribution with its point release and architecture: what its packages are cached under."""
    files = [Path("/etc/os-release"), Path("/etc/debian_version")]
    return "".join(f.read_text() for f in files if f.exists()) + os.uname().machine


def unpack(packages: Iterable[str], folder: Path) -> None:
    """Download the packages and lay their files out under `folder`; nothing is installed."""
    with tempfile.TemporaryDirectory() as download:
        os.chmod(download, 0o755)  # apt's own user may look at it
        _run(["apt-get", "download", "-qq", *packages], cwd=download)
        for archive in sorted(Path(download).glob("*.deb")):
            _run(["dpkg", "-x", str(archive), str(folder)])


def _depends(packages: Iterable[str]) -> set[str]:
    return set(first_alternatives(_run(["apt-cache", "depends", "--important", *sorted(packages)])))


def first_alternatives(listing: str) -> list[str]:
    """Package names out of `apt-cache depends`: of `a | b` the first, of a virtual package its first provider."""
    names: list[str] = []
    more = virtual = False  # the line before was an alternative ("|"); was a virtual package ("<name>")
    for line in listing.splitlines():
        match = re.match(r"\s+(\|?)(?:Pre)?Depends: (<?)([^>\s:]+)", line)
        if match:
            if not more and not match[2]:
                names.append(match[3])
            virtual = bool(match[2]) and not more
            more = bool(match[1])
        elif virtual and line.startswith("    "):
            names.append(line.strip().partition(":")[0])
            virtual = False
        else:
            virtual = False
    return names


def _ensure_lists() -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise HarnessError("no apt-get here: the node's programs and the images come from Debian's packages")
    if any(Path("/var/lib/apt/lists").glob("*_Packages*")):
        return
    if os.geteuid() != 0:
        raise HarnessError("apt has no package lists: run 'apt-get update' as root")
    say("apt has no package lists: apt-get update")
    _run(["apt-get", "update", "-qq"])


def _run(command: list[str], cwd: str | None = None) -> str:
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    result = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        hint = "; if the package lists are old: apt-get update" if command[0] == "apt-get" else ""
        raise HarnessError(f"'{' '.join(command)}' failed: {result.stderr.strip()}{hint}")
    return result.stdout
