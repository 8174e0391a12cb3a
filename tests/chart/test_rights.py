"""What the operator's ServiceAccount may and may not do, asked of a real API server."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from harness.controlplane import ControlPlane
from harness.errors import HarnessError

pytestmark = pytest.mark.apiserver
SDD = "specdecodedeployments.specfleet.dev"
ALLOWED = (
    f"list {SDD}", f"watch {SDD}", f"patch {SDD} --subresource=status", f"update {SDD} --subresource=finalizers",
    "create deployments.apps", "patch deployments.apps", "delete deployments.apps", "create controllerrevisions.apps",
    "patch services", "create configmaps", "delete poddisruptionbudgets.policy", "patch pods", "create events",
)  # fmt: skip
FORBIDDEN = (
    f"patch {SDD}", f"update {SDD}", f"create {SDD}", f"delete {SDD}", "delete pods", "create pods",
    "create pods --subresource=exec", "create pods --subresource=eviction", "get secrets", "list secrets", "get nodes",
    "patch nodes", "list namespaces", "create roles.rbac.authorization.k8s.io", "deletecollection deployments.apps",
    "update leases.coordination.k8s.io", "create serviceaccounts", "get serviceaccounts --subresource=token",
)  # fmt: skip


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, rendered: Callable[..., list[dict[str, Any]]]) -> ControlPlane:
    """The chart with defaults, as release `fleet`."""
    for namespace in ("specfleet", "chat", "search", "other"):
        control_plane.kubectl("create", "namespace", namespace)
    control_plane.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(rendered("defaults")))
    return control_plane


def may(plane: ControlPlane, what: str, namespace: str, account: str = "fleet") -> bool:
    arguments = ["auth", "can-i", *what.split(), "-n", namespace, "-q"]
    try:
        plane.kubectl(*arguments, f"--as=system:serviceaccount:specfleet:{account}")
    except HarnessError:
        return False
    return True


@pytest.mark.parametrize("what", ALLOWED)
def test_it_may_do_what_it_does(installed: ControlPlane, what: str) -> None:
    assert may(installed, what, "chat")


@pytest.mark.parametrize("what", FORBIDDEN)
def test_it_may_do_nothing_else(installed: ControlPlane, what: str) -> None:
    assert not may(installed, what, "chat")


def test_its_lease_is_in_its_own_namespace(installed: ControlPlane) -> None:
    for verb in ("get", "create", "update", "patch"):
        assert may(installed, f"{verb} leases.coordination.k8s.io", "specfleet")
    assert not may(installed, "delete leases.coordination.k8s.io", "specfleet")


def test_with_watched_namespaces_it_has_no_rights_elsewhere(
    installed: ControlPlane, rendered: Callable[..., list[dict[str, Any]]]
) -> None:
    installed.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(rendered("namespaced", "small")))
    assert may(installed, "create deployments.apps", "chat", "small")
    assert may(installed, "get secrets", "search", "small")
    assert not may(installed, "list deployments.apps", "other", "small")
    assert not may(installed, "list secrets", "chat", "small")


def test_the_pod_is_admitted_by_a_restricted_namespace(
    installed: ControlPlane, rendered: Callable[..., list[dict[str, Any]]]
) -> None:
    installed.kubectl("label", "namespace", "other", "pod-security.kubernetes.io/enforce=restricted", "--overwrite")
    (deployment,) = [item for item in rendered("everything") if item["kind"] == "Deployment"]
    template = deployment["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "operator"}, "spec": template["spec"]}
    pod["spec"]["serviceAccountName"] = "default"
    installed.kubectl("create", "-n", "other", "--dry-run=server", "-f", "-", input=yaml.safe_dump(pod))
