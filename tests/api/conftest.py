"""A real API server that knows the resource."""

from pathlib import Path

import pytest

from apiserver import define
from harness.controlplane import ControlPlane

CRD = Path(__file__).parents[2] / "crds" / "specfleet.dev_specdecodedeployments.yaml"


@pytest.fixture(scope="session")
def crd_plane(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with the CustomResourceDefinition."""
    define(control_plane, CRD)
    return control_plane
