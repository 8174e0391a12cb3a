"""Flagger, a peer behind the gateway: its controller and its kinds from the Go module proxy, built once and cached."""

from __future__ import annotations

from pathlib import Path

from harness import gatewaybins

MODULE, VERSION = "github.com/fluxcd/flagger", "v1.36.1"


def program() -> Path:
    """The program `flagger`."""
    return gatewaybins.built((MODULE, VERSION), "flagger", "2 minutes of CPU time")


def crds() -> Path:
    """A folder with the manifest of its kinds."""
    return gatewaybins.manifests("flagger-crds", (MODULE, VERSION), "artifacts/flagger/crd.yaml")
