"""The pytest fixture of a real Kubernetes API: one control plane for the whole run."""

from collections.abc import Iterator

import pytest

from harness.controlplane import ControlPlane


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """etcd, kube-apiserver and kube-controller-manager on loopback, with an audit log. Use a namespace per test."""
    with ControlPlane(audit=True) as plane:
        yield plane
