"""A real API server that knows the resource."""

from pathlib import Path

import pytest

from harness.controlplane import ControlPlane

CRD = Path(__file__).parents[2] / "crds" / "specfleet.dev_specdecodedeployments.yaml"


@pytest.fixture(scope="session")
def crd_plane(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with the CustomResourceDefinition, applied as a user would: on the client's side."""
    control_plane.kubectl("apply", "-f", str(CRD))
    control_plane.kubectl("wait", "--for=condition=Established", "-f", str(CRD), "--timeout=30s")
    return control_plane
