"""What a peer's controller needs on a cluster before it starts: its kinds, and an account that may do all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.stage import Stage


def kinds(stage: Stage, files: Iterable[Path], resources: Sequence[str]) -> None:
    """Install these manifests of kinds, and return when their resources are served."""
    stage.kubectl("apply", "--server-side", *(f"--filename={file}" for file in files))
    stage.wait(f"the kinds {', '.join(resources)}", 60, lambda: _served(stage, resources))


def _served(stage: Stage, resources: Sequence[str]) -> bool:
    """They can be listed: there are none yet, and no error."""
    return not stage.cluster.kubectl("get", ",".join(resources), "--output=name", check=False)


def user(name: str) -> str:
    """How the audit log names the account of that name."""
    return f"system:serviceaccount:{name}:{name}"


def account(stage: Stage, name: str) -> Path:
    """A namespace with a service account, both of that name; the kubeconfig of the account."""
    stage.kubectl("create", "namespace", name)
    stage.kubectl("-n", name, "create", "serviceaccount", name)
    who = f"--serviceaccount={name}:{name}"
    stage.kubectl("create", "clusterrolebinding", name, "--clusterrole=cluster-admin", who)
    token = stage.kubectl("-n", name, "create", "token", name, "--duration=6h").strip()
    config = json.loads(stage.cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = stage.cluster.state / f"{name}.kubeconfig"
    path.write_text(json.dumps(config))
    return path
