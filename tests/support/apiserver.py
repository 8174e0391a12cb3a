"""The pytest fixture of a real Kubernetes API, one control plane for the whole run, and how it learns a resource."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from harness.controlplane import ControlPlane
from harness.process import wait_for


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """etcd, kube-apiserver and kube-controller-manager on loopback, with an audit log. Use a namespace per test."""
    with ControlPlane(audit=True) as plane:
        yield plane


def define(plane: ControlPlane, crd: Path) -> None:
    """Apply a CustomResourceDefinition, as a user would: on the client's side; returns when it is served.

    `kubectl wait` fails on one that has no conditions yet.
    """
    plane.kubectl("apply", "-f", str(crd))
    wait_for(crd.stem, 30, partial(_established, plane, crd), plane.check)


def serve(plane: ControlPlane, *crds: Path) -> None:
    """Apply CustomResourceDefinitions that are too large for an annotation, on the server's side; returns when all are
    served."""
    for crd in crds:
        plane.kubectl("apply", "--server-side", "-f", str(crd))
    for crd in crds:
        wait_for(crd.stem, 30, partial(_established, plane, crd), plane.check)


def _established(plane: ControlPlane, crd: Path) -> bool:
    conditions = json.loads(plane.kubectl("get", "-f", str(crd), "-o", "jsonpath={.status.conditions}") or "[]")
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions or ())
