"""The real control plane serves, collects garbage, counts requests, and says why it died."""

import json
import time
from collections.abc import Callable

import pytest

from harness.controlplane import ControlPlane
from harness.errors import HarnessError

pytestmark = pytest.mark.apiserver


def config_map(name: str, owner: dict[str, str] | None = None) -> str:
    references = [{"apiVersion": "v1", "kind": "ConfigMap", **owner}] if owner else []
    metadata = {"name": name, "namespace": "smoke", "ownerReferences": references}
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}})


def eventually(true: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not (result := true()) and time.monotonic() < end:
        time.sleep(0.1)
    return result


def test_stores_objects_and_collects_those_whose_owner_is_gone(control_plane: ControlPlane) -> None:
    kubectl = control_plane.kubectl
    kubectl("create", "namespace", "smoke")
    owner = json.loads(kubectl("create", "-f", "-", "-o", "json", input=config_map("owner")))
    kubectl("create", "-f", "-", input=config_map("owned", {"name": "owner", "uid": owner["metadata"]["uid"]}))
    kubectl("create", "-f", "-", input=config_map("free"))
    assert json.loads(kubectl("get", "configmap", "owned", "-n", "smoke", "-o", "json"))["data"] == {"a": "b"}

    kubectl("delete", "configmap", "owner", "-n", "smoke")

    def names() -> str:
        return kubectl("get", "configmap", "-n", "smoke", "-o", "name")

    assert eventually(lambda: "owned" not in names())
    assert "configmap/free" in names()


def test_audit_log_has_a_line_for_each_request(control_plane: ControlPlane) -> None:
    control_plane.kubectl("get", "--raw", "/api/v1/namespaces?labelSelector=counted")
    events = [json.loads(line) for line in control_plane.audit_log.read_text().splitlines()]
    assert [e["verb"] for e in events if "labelSelector=counted" in e["requestURI"]] == ["list"]


def test_refused_command_raises_what_kubectl_said(control_plane: ControlPlane) -> None:
    with pytest.raises(HarnessError, match='configmaps "absent" not found'):
        control_plane.kubectl("get", "configmap", "absent")
