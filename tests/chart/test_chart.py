"""What the chart renders, and what it refuses."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from specfleet.api import validation
from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec

VALUES = ("defaults", "namespaced", "everything")
CHART = Path(__file__).parents[2] / "charts" / "specfleet"
Rendered = Callable[..., list[dict[str, Any]]]


def of(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in objects if item["kind"] == kind]


def rules(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for item in of(objects, "Role") + of(objects, "ClusterRole"):
        yield from item["rules"]


@pytest.mark.parametrize("values", VALUES)
def test_every_object_is_valid_for_its_kind(rendered: Rendered, values: str) -> None:
    for item in rendered(values):
        if item["kind"] != "CustomResourceDefinition":  # the validator's schema of a CRD is recursive
            kubernetes_validate.validate(item, "1.37", strict=True)


@pytest.mark.parametrize("values", VALUES)
def test_every_object_carries_the_release_and_no_cluster_wide_wildcard(rendered: Rendered, values: str) -> None:
    objects = rendered(values)
    assert all("*" not in json.dumps(rule) for rule in rules(objects))
    for item in objects:
        if item["kind"] != "CustomResourceDefinition":
            assert item["metadata"]["labels"]["app.kubernetes.io/instance"] == "fleet"


@pytest.mark.parametrize("values", VALUES)
def test_the_pod_is_what_a_restricted_namespace_admits(rendered: Rendered, values: str) -> None:
    pod = of(rendered(values), "Deployment")[0]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 65532
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [volume.keys() - {"name"} for volume in pod["volumes"]] == [{"emptyDir"}]


def test_the_number_of_replicas_changes_nothing_else(rendered: Rendered) -> None:
    """A strategy that follows it cannot be changed by server-side apply: Recreate forbids what RollingUpdate left."""
    assert of(rendered("everything"), "Deployment")[0]["spec"]["replicas"] > 1
    for values in VALUES:
        assert "strategy" not in of(rendered(values), "Deployment")[0]["spec"]


def test_the_image_follows_the_chart_unless_a_tag_is_set(rendered: Rendered) -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    container = of(rendered("defaults"), "Deployment")[0]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == f"specfleet.dev/operator:{version}"
    container = of(rendered("everything"), "Deployment")[0]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "registry.example.com/specfleet/operator:v9"


def test_probes_are_asked_unless_a_value_says_no(rendered: Rendered) -> None:
    for values, asked in (("defaults", True), ("everything", False)):
        container = of(rendered(values), "Deployment")[0]["spec"]["template"]["spec"]["containers"][0]
        assert ("--no-probes" in container["args"]) != asked


def test_watched_namespaces_become_arguments_and_roles_instead_of_a_cluster_role(rendered: Rendered) -> None:
    objects = rendered("namespaced")
    container = of(objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"][0]
    expected = ["--watch-namespace=chat", "--watch-namespace=search", "--read-nodes"]
    expected += ["--log-level=debug", "--log-format=text"]
    assert container["args"] == expected
    roles = {(item["metadata"]["namespace"], item["metadata"]["name"]) for item in of(objects, "Role")}
    assert roles == {("chat", "fleet-operator"), ("search", "fleet-operator"), ("specfleet", "fleet-lease")}
    assert [item["metadata"]["name"] for item in of(objects, "ClusterRole")] == ["fleet-nodes"]


def test_secrets_and_nodes_are_read_only_when_asked_for(rendered: Rendered) -> None:
    def verbs(values: str, resource: str) -> set[str]:
        return {verb for rule in rules(rendered(values)) if resource in rule["resources"] for verb in rule["verbs"]}

    assert verbs("defaults", "secrets") == verbs("defaults", "nodes") == set()
    assert verbs("namespaced", "secrets") == {"get"}
    assert verbs("namespaced", "nodes") == {"list"}


def test_the_metrics_service_selects_the_pod_and_its_port(rendered: Rendered) -> None:
    objects = rendered("defaults")
    (service,), (deployment,) = of(objects, "Service"), of(objects, "Deployment")
    template = deployment["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    port = {"name": service["spec"]["ports"][0]["targetPort"], "containerPort": 8080}
    assert port in template["spec"]["containers"][0]["ports"]


def test_the_rendered_crd_is_the_generated_one_and_stays_when_the_release_goes(rendered: Rendered) -> None:
    (crd,) = of(rendered("defaults"), "CustomResourceDefinition")
    assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert crd == yaml.safe_load((CHART.parents[1] / "crds/specfleet.dev_specdecodedeployments.yaml").read_text())
    assert of(rendered("everything"), "CustomResourceDefinition") == []


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ("replica=1", "replica"),
        ("replicas=-1", "replicas"),
        ("image.name=x", "name"),
        ("log.level=verbose", "level"),
        ("watchNamespaces={Chat}", "watchNamespaces"),
        ("watchNamespaces=chat", "watchNamespaces"),
        ("nodes.write=true", "write"),
        ("apiKeySecrets.read=perhaps", "read"),
        ("probes.enabled=perhaps", "enabled"),
        ("securityContext.privileged=true", "securityContext"),
        ("serviceAccount.create=false", "serviceAccount.name"),
    ],
)
def test_a_wrong_value_is_refused_by_name(helm: Callable[..., Any], setting: str, field: str) -> None:
    result = helm("template", "fleet", str(CHART), "--set", setting)
    assert result.returncode != 0
    assert field in result.stderr


def test_every_value_has_a_schema_and_the_other_way_round(helm: Callable[..., Any]) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}
    assert helm("lint", "--strict", str(CHART)).returncode == 0


def test_the_notes_hold_a_resource_that_is_valid() -> None:
    notes = (CHART / "templates" / "NOTES.txt").read_text()
    resource = notes.split("<<EOF\n", 1)[1].split("  EOF", 1)[0]
    assert isinstance(validation.parse(yaml.safe_load(resource)), SpecDecodeDeploymentSpec)
