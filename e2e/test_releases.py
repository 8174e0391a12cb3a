"""Installing, upgrading, rolling back and removing the operator: never a pod restarts for it, never a user notices."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness import release
from harness.errors import HarnessError
from harness.fleet import Fleet, NewFleet, tokens
from harness.stage import OPERATOR_NAMESPACE, Stage

CRD = "specdecodedeployments.specfleet.dev"
USER = 2000
UNDECIDED = [{"weight": 33, "minSeconds": 3600}]  # while the operator is replaced, however long that takes
DECIDED = [{"weight": 33, "minSeconds": 5}]


@pytest.fixture(scope="module")
def next_chart(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart of the next release, whose operator's image is on the node."""
    stage.cluster.import_image(release.operator())
    return release.chart(tmp_path_factory.mktemp("next"))


@contextmanager
def installed(stage: Stage, chart: Path, tag: str) -> Iterator[None]:
    """Another release, until the context ends; then this checkout's again."""
    try:
        stage.install({"image.tag": tag}, chart)
        yield
    finally:
        stage.install()


def test_next_release_mid_canary(stage: Stage, new_fleet: NewFleet, next_chart: Path) -> None:
    fleet = new_fleet("upgraded", steps=UNDECIDED, retainSeconds=0)
    with fleet.traffic():
        canary = fleet.canary(tokens(5))
        before, made = fleet.lives(), fleet.revisions()
        assert release.FIELD not in known_fields(stage)
        with installed(stage, next_chart, release.TAG):
            assert release.FIELD in known_fields(stage)
            assert fleet.lives() == before, "it began a pod anew"
            fleet.edit({"rollout": {"steps": DECIDED}})
            fleet.promoted(canary)
            fleet.wait("explanation", 30, lambda: release.VARIABLE in outdated(fleet))
            assert names(fleet.revisions()) == names(made)
            assert not any(renders_as_next(pod) for pod in fleet.pods()), "it reached pods"
            restarted = fleet.canary({"restart": "after the upgrade"})
            assert all(renders_as_next(pod) for pod in fleet.pods(restarted))
            fleet.promote(restarted)
            fleet.wait("end of the explanation", 30, lambda: not outdated(fleet))
        assert not any(pod.restarts for pod in fleet.log.pods.values())
        fleet.none_failed()


def test_older_operator_under_a_newer_crd(stage: Stage, new_fleet: NewFleet, next_chart: Path) -> None:
    fleet = new_fleet("older")
    before = fleet.lives()
    with installed(stage, next_chart, "dev"):
        fleet.edit({release.FIELD: "kept", "replicas": 3})
        fleet.wait("its third pod", 60, lambda: fleet.settled() and len(fleet.pods()) == 3)
        assert fleet.spec()[release.FIELD] == "kept"
        assert before.items() <= fleet.lives().items()
        assert len(fleet.revisions()) == 1
    assert release.FIELD not in known_fields(stage)
    assert fleet.spec()["replicas"] == 3, "the older CRD does not read it"


def test_removed_and_installed_again(stage: Stage, new_fleet: NewFleet) -> None:
    fleet = new_fleet("adopted")
    with fleet.traffic():
        before, made = fleet.lives(), fleet.revisions()
        try:
            stage.helm("uninstall", "specfleet", "--wait")
            stage.wait("end of the operator", 60, lambda: not stage.operators())
            stage.say("helm uninstall: there is no operator")
            removed = fleet.second()
            fleet.wait("answers without it", 30, lambda: fleet.second() > removed + 5)
            assert (fleet.lives(), fleet.revisions()) == (before, made)
        finally:
            stage.install()
        fleet.edit({"replicas": 3})
        fleet.wait("a third pod", 60, lambda: fleet.settled() and len(fleet.pods()) == 3)
        assert before.items() <= fleet.lives().items()
        assert names(fleet.revisions()) == names(made)
        fleet.none_failed()


def test_restricted_namespaces(stage: Stage, new_fleet: NewFleet) -> None:
    assert refuses_root(stage, OPERATOR_NAMESPACE), "the operator is to run under the strictest profile"
    with stage.restricted("default"):
        assert refuses_root(stage, "default")
        fleet = new_fleet("nonroot", pod={"runAsUser": USER})
        with fleet.traffic():
            canary = fleet.canary(tokens(5))
            assert {pod["spec"]["securityContext"]["runAsUser"] for pod in fleet.pods()} == {USER}
            fleet.promote(canary)
            fleet.none_failed()


def known_fields(stage: Stage) -> dict[str, Any]:
    """What the CRD in the cluster knows of `spec`."""
    (version,) = json.loads(stage.kubectl("get", "crd", CRD, "-o", "json"))["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return found


def names(revisions: list[dict[str, Any]]) -> list[str]:
    return [item["metadata"]["name"] for item in revisions]


def outdated(fleet: Fleet) -> str:
    """What a restart would change, as the status says it."""
    said = fleet.status().get("conditions", ())
    return next((item["message"] for item in said if item["type"] == "TemplateOutdated"), "")


def renders_as_next(pod: dict[str, Any]) -> bool:
    return any(item["name"] == release.VARIABLE for item in pod["spec"]["containers"][0]["env"])


def refuses_root(stage: Stage, namespace: str) -> bool:
    try:
        stage.kubectl("-n", namespace, "run", "root", "--image=specfleet.dev/pause:1", "--dry-run=server")
    except HarnessError as error:
        return "restricted" in str(error)
    return False
