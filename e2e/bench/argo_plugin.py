"""Argo Rollouts' traffic router for the Gateway API: a program of its own, which is given as it was released."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from harness import cache
from harness.errors import HarnessError

VARIABLE = "ARGO_GATEWAY_PLUGIN"
PROGRAM = "gatewayapi-plugin"
RELEASES = "https://github.com/argoproj-labs/rollouts-plugin-trafficrouter-gatewayapi/releases"


def ensure() -> Path:
    """The program: what the environment names, else what lies in the cache. HarnessError says where to get one."""
    given = os.environ.get(VARIABLE)
    path = Path(given) if given else cache.root() / PROGRAM
    if not os.access(path, os.X_OK):
        raise HarnessError(
            f"no program {path}: Argo Rollouts' traffic router for the Gateway API is taken as it was released. "
            f"Fetch one for this machine from {RELEASES}, make it executable, and name it in {VARIABLE}; "
            "or leave Argo out: --only specfleet flagger"
        )
    return path.resolve()


def digest(path: Path) -> str:
    """The first 12 hex digits of its SHA-256, by which a page says which one it was."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
