"""A real API server takes every example, stores nothing that differs from it, and admits its pods where we say so."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from harness.controlplane import ControlPlane
from harness.errors import HarnessError
from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.resources import pod
from specfleet.resources.disruption import disruption_budget
from specfleet.resources.evidence import evidence_map
from specfleet.resources.owned import differs
from specfleet.resources.revision import controller_revision, render
from specfleet.resources.service import revision_service, stable_service
from specfleet.resources.workload import deployment

pytestmark = pytest.mark.apiserver
REVISION = "llama-6b7f9c42"
DRY_RUN = ("--dry-run=server", "--validate=strict", "-f", "-", "-o", "json")
Load = Callable[[str], SpecDecodeDeploymentSpec]


def test_what_the_api_server_makes_of_an_object_is_no_difference(
    example: str, sdd: dict[str, Any], load: Load, control_plane: ControlPlane
) -> None:
    sdd["metadata"]["namespace"] = "default"
    payload = render("llama", REVISION, load(example))
    manifests = [
        deployment(sdd, REVISION, payload, 0),
        controller_revision(sdd, REVISION, 1, "ab" * 32, payload, {}),
        revision_service(sdd, REVISION),
        stable_service(sdd, None),
        disruption_budget(sdd, REVISION),
        evidence_map(sdd, {"blocks": "[]"}),
    ]
    bundle = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
    live = json.loads(control_plane.kubectl("apply", "--server-side", *DRY_RUN, input=bundle))["items"]
    assert [item["kind"] for item in live] == [manifest["kind"] for manifest in manifests]
    assert [differs(manifest, item) for manifest, item in zip(manifests, live, strict=True)] == [None] * 6


@pytest.fixture(scope="module")
def namespaces(control_plane: ControlPlane) -> ControlPlane:
    for level in ("baseline", "restricted"):
        name = f"admits-{level}"
        labels = {"pod-security.kubernetes.io/enforce": level}
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        control_plane.kubectl("create", "-f", "-", input=json.dumps(manifest))
        control_plane.kubectl("wait", "--for=create", "serviceaccount/default", "-n", name, "--timeout=30s")
    return control_plane


def _create(plane: ControlPlane, namespace: str, template: dict[str, Any]) -> None:
    metadata = {**template["metadata"], "name": "qwen", "namespace": namespace}
    manifest = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}
    plane.kubectl("create", *DRY_RUN, input=json.dumps(manifest))


@pytest.mark.parametrize("name", ["minimal", "weights-on-volumes", "ngram", "restricted", "awkward"])
def test_a_baseline_namespace_admits_any_pod(name: str, load: Load, namespaces: ControlPlane) -> None:
    _create(namespaces, "admits-baseline", pod.template("qwen", REVISION, load(name)))


def test_a_restricted_namespace_admits_a_pod_with_a_user_id_and_no_other(load: Load, namespaces: ControlPlane) -> None:
    _create(namespaces, "admits-restricted", pod.template("qwen", REVISION, load("restricted")))
    with pytest.raises(HarnessError, match=r"violates PodSecurity.*runAsNonRoot"):
        _create(namespaces, "admits-restricted", pod.template("qwen", REVISION, load("minimal")))


def test_a_restricted_namespace_admits_weights_on_volumes(load: Load, namespaces: ControlPlane) -> None:
    template = pod.template("qwen", REVISION, load("weights-on-volumes"))
    template["spec"]["securityContext"] |= {"runAsNonRoot": True, "runAsUser": 1000}
    _create(namespaces, "admits-restricted", template)
