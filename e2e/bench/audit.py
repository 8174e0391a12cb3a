"""A control plane with an audit log, an account for each operator, and what the log tells of its requests."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.controlplane import ControlPlane

ACCOUNT = "specfleet"
USER = "system:serviceaccount:"
TOKEN = "2h"
OURS = re.compile(rf'"username":"{USER}[^":]+:{ACCOUNT}"'.encode())

# Nobody reads endpoints here, and those controllers would try for ever: addresses of the loopback network are refused.
CONTROLLERS = "--controllers=*,-endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller"

Object = dict[str, Any]


class Plane(ControlPlane):
    """A control plane with an audit log, and without endpoints."""

    def __init__(self) -> None:
        super().__init__(audit=True)

    def _run(self, name: str, arguments: Sequence[str]) -> None:
        more = (CONTROLLERS,) if name == "kube-controller-manager" else ()
        super()._run(name, [*arguments, *more])


@dataclass(frozen=True, slots=True)
class Request:
    """One line of the API server's audit log; `namespace` is that of the account that asked."""

    namespace: str
    time: float
    verb: str
    what: str  # resource or resource/subresource
    uri: str
    agent: str

    @property
    def counts(self) -> bool:
        """Watches and the Lease are what any operator has."""
        return self.verb != "watch" and self.what != "leases"


def requests(log: Path) -> Iterator[Request]:
    """What accounts of `account` have asked, from the audit log and its rotated predecessors."""
    for path in sorted(log.parent.glob(f"{log.stem}*{log.suffix}")):
        with open(path, "rb") as file:
            for line in file:
                if OURS.search(line):
                    yield _request(json.loads(line))


def _request(line: Object) -> Request:
    about = line.get("objectRef") or {}
    parts = [about.get("resource", line["requestURI"]), about.get("subresource")]
    return Request(
        namespace=line["user"]["username"].removeprefix(USER).partition(":")[0],
        time=datetime.fromisoformat(line["requestReceivedTimestamp"].replace("Z", "+00:00")).timestamp(),
        verb=line["verb"],
        what="/".join(part for part in parts if part),
        uri=line["requestURI"],
        agent=line.get("userAgent", ""),
    )


def account(plane: ControlPlane, namespace: str) -> Object:
    """A kubeconfig for an account that may do everything, named after the namespace, by which its requests are told."""
    plane.kubectl("create", "serviceaccount", ACCOUNT, f"--namespace={namespace}")
    who = f"--serviceaccount={namespace}:{ACCOUNT}"
    plane.kubectl("create", "clusterrolebinding", namespace, "--clusterrole=cluster-admin", who)
    token = plane.kubectl("create", "token", ACCOUNT, f"--namespace={namespace}", f"--duration={TOKEN}").strip()
    authority = base64.b64encode((plane.kubeconfig.parent / "ca.crt").read_bytes()).decode()
    cluster = {"server": plane.url, "certificate-authority-data": authority}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bench", "cluster": cluster}],
        "users": [{"name": "bench", "user": {"token": token}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "current-context": "bench",
    }
