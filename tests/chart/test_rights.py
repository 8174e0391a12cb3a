"""What the operator's ServiceAccount may and may not do, asked of a real API server."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from harness.controlplane import ControlPlane
from specfleet.controller.protocol import WATCHED, Resource

pytestmark = pytest.mark.apiserver
SDD = "specdecodedeployments.specfleet.dev"
ROUTES, GATEWAYS = "httproutes.gateway.networking.k8s.io", "gateways.gateway.networking.k8s.io"
ALLOWED = (
    f"list {SDD}", f"watch {SDD}", f"patch {SDD} --subresource=status", f"update {SDD} --subresource=finalizers",
    "create deployments.apps", "patch deployments.apps", "delete deployments.apps", "create controllerrevisions.apps",
    "patch services", "create configmaps", "delete poddisruptionbudgets.policy", "patch pods", "create events",
    f"create {ROUTES}", f"patch {ROUTES}", f"delete {ROUTES}",
)  # fmt: skip
FORBIDDEN = (
    f"patch {SDD}", f"update {SDD}", f"create {SDD}", f"delete {SDD}", "delete pods", "create pods",
    "create pods --subresource=exec", "create pods --subresource=eviction", "get secrets", "list secrets", "get nodes",
    "patch nodes", "list namespaces", "create roles.rbac.authorization.k8s.io", "deletecollection deployments.apps",
    "update leases.coordination.k8s.io", "create serviceaccounts", "get serviceaccounts --subresource=token",
    f"update {ROUTES}", f"patch {ROUTES} --subresource=status", f"patch {GATEWAYS}", f"create {GATEWAYS}",
    "patch endpointslices.discovery.k8s.io", "get referencegrants.gateway.networking.k8s.io",
)  # fmt: skip

READ, OWN = {"list", "watch"}, {"get", "list", "watch", "create", "patch", "delete"}
RIGHTS = {
    SDD: READ,
    f"{SDD}/status": {"patch"},
    f"{SDD}/finalizers": {"update"},
    "deployments.apps": OWN,
    "controllerrevisions.apps": OWN,
    "services": OWN,
    "configmaps": OWN,
    "poddisruptionbudgets.policy": OWN,
    ROUTES: OWN,
    GATEWAYS: READ,
    "endpointslices.discovery.k8s.io": READ,
    "pods": READ | {"patch"},
    "events": {"create"},
}


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, rendered: Callable[..., list[dict[str, Any]]]) -> ControlPlane:
    """The chart with defaults, as release `fleet`."""
    for namespace in ("specfleet", "chat", "search", "other"):
        control_plane.kubectl("create", "namespace", namespace)
    control_plane.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(rendered("defaults")))
    return control_plane


def may(plane: ControlPlane, what: str, namespace: str, account: str = "fleet") -> bool:
    """Asked by name, so that a kind need not be installed."""
    verb, resource, *sub = what.split()
    plural, _, group = resource.partition(".")
    attributes = {"verb": verb, "resource": plural, "group": group, "namespace": namespace}
    if sub:
        attributes["subresource"] = sub[0].removeprefix("--subresource=")
    user = f"system:serviceaccount:specfleet:{account}"
    groups = ["system:serviceaccounts", "system:serviceaccounts:specfleet", "system:authenticated"]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "resourceAttributes": attributes},
    }
    answer = plane.kubectl("create", "-f", "-", "-o", "jsonpath={.status.allowed}", input=json.dumps(review))
    return {"true": True, "false": False}[answer]


@pytest.mark.parametrize("what", ALLOWED)
def test_it_may_do_what_it_does(installed: ControlPlane, what: str) -> None:
    assert may(installed, what, "chat")


@pytest.mark.parametrize("what", FORBIDDEN)
def test_it_may_do_nothing_else(installed: ControlPlane, what: str) -> None:
    assert not may(installed, what, "chat")


@pytest.mark.parametrize("resource", WATCHED, ids=lambda resource: resource.plural)
def test_it_may_look_at_all_that_it_watches(installed: ControlPlane, resource: Resource) -> None:
    group = resource.api_version.rpartition("/")[0]
    for verb in ("list", "watch"):
        assert may(installed, f"{verb} {resource.plural}{'.' if group else ''}{group}", "chat")


@pytest.mark.parametrize("values", ["defaults", "everything"])
def test_its_rights_are_these_and_no_others(rendered: Callable[..., list[dict[str, Any]]], values: str) -> None:
    (role,) = [item for item in rendered(values) if item["metadata"]["name"].endswith("-operator") and "rules" in item]
    rights: dict[str, set[str]] = {}
    for rule in role["rules"]:
        assert rule.keys() == {"apiGroups", "resources", "verbs"}
        (group,) = rule["apiGroups"]
        for resource in rule["resources"]:
            name, *sub = resource.split("/")
            whole = "/".join([f"{name}.{group}".rstrip("."), *sub])
            rights.setdefault(whole, set()).update(rule["verbs"])
    rights.pop("secrets", None)  # only where apiKeySecrets.read says so
    assert rights == RIGHTS


def test_its_lease_is_in_its_own_namespace(installed: ControlPlane) -> None:
    for verb in ("get", "create", "update"):
        assert may(installed, f"{verb} leases.coordination.k8s.io", "specfleet")
    assert not may(installed, "delete leases.coordination.k8s.io", "specfleet")


def test_with_watched_namespaces_it_has_no_rights_elsewhere(
    installed: ControlPlane, rendered: Callable[..., list[dict[str, Any]]]
) -> None:
    installed.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(rendered("namespaced", "small")))
    assert may(installed, "create deployments.apps", "chat", "small")
    assert may(installed, "get secrets", "search", "small")
    assert not may(installed, "list deployments.apps", "other", "small")
    assert may(installed, f"list {GATEWAYS}", "chat", "small")
    assert not may(installed, f"list {GATEWAYS}", "gateways", "small"), "those of others cannot be told from absent"
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
