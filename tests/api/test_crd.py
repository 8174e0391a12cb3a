"""The generated files, and what a real API server makes of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.controlplane import ControlPlane
from specfleet.api import crd, validation
from specfleet.api.conditions import Type, condition, merge
from specfleet.api.reasons import Reason
from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec, SpecDecodeDeploymentStatus

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.yaml"))
STATUS: dict[str, Any] = {
    "observedGeneration": 1,
    "reason": "CanaryAnalysing",
    "model": "llama-70b",
    "stable": {
        "revision": "llama-6b7f9c42",
        "numSpeculativeTokens": "3",
        "replicas": 3,
        "ready": 3,
        "method": "eagle3",
    },
    "canary": {
        "revision": "llama-9d2zx4kv",
        "numSpeculativeTokens": "5",
        "guards": [{"name": "alive", "state": "passing", "message": "0 restarts"}],
    },
    "weight": "5%",
    "proposalLength": "3→5",
    "acceptance": "61%",
    "tokensPerStep": "2.8",
    "ready": "4/4",
    "replicas": 4,
    "selector": "specfleet.dev/deployment=llama",
    "step": {"index": 1, "of": 3, "askedWeight": "5%", "reachable": "25%", "since": "2026-11-30T12:00:00Z"},
    "metrics": [{"name": "speed", "outcome": "Inconclusive", "lower": "-6.1", "margin": "5", "blocks": 4}],
    "decisions": [{"time": "2026-11-30T12:00:00Z", "reason": "StepReached", "message": "5%"}],
    "lastHandledAction": {"id": "42", "type": "Promote", "result": "Honoured"},
    "findings": ["spec.engine.image follows latest"],
    "conditions": merge([], [condition(Type.READY, "True", Reason.CANARY_ANALYSING, "", 1)], "2026-11-30T12:00:00Z"),
}


def leaves(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from leaves(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from leaves(schema[key], f"{path}[]")


def test_the_files_in_the_repository_are_what_the_models_say() -> None:
    stale = [str(path) for path, text in crd.files().items() if path.read_text() != text]
    assert stale == [], "run python -m specfleet.api.crd"


def test_check_reports_a_stale_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert crd.main(["--check"]) == 0
    monkeypatch.setattr(crd, "files", lambda: {crd.CRD_FILE: "something else"})
    assert crd.main(["--check"]) == 1
    assert "specdecodedeployments.yaml differs" in capsys.readouterr().err


def test_what_is_rendered_as_yaml_reads_back() -> None:
    assert yaml.safe_load(crd.render(crd.crd())) == crd.crd()
    awkward = {"a": [[1, 2], [], {"b": {}}], "b": "no", "text": "a: #b\n'\"é", "none": None}
    assert yaml.safe_load(crd.render(awkward)) == awkward


def test_it_fits_the_annotation_of_kubectl_apply() -> None:
    assert crd.CRD_FILE.stat().st_size < 200_000
    assert len(json.dumps(crd.crd())) < 262_144


def test_only_replicas_has_a_default() -> None:
    assert [path for path, schema in leaves(crd.schema()) if "default" in schema] == [".spec.replicas"]


def test_every_field_is_explained() -> None:
    inner = {".apiVersion", ".kind", ".metadata"}
    bare = [path for path, item in leaves(crd.schema()) if "description" not in item and not path.endswith("[]")]
    assert set(bare) == inner


def test_every_list_map_and_string_of_the_spec_is_bounded() -> None:
    """The API server estimates a CEL rule's cost from the largest value that the schema admits."""
    limits = {"array": "maxItems", "string": "maxLength"}
    for path, schema in leaves(crd.schema()["properties"]["spec"]):
        limit = limits.get(schema.get("type", ""))
        assert limit is None or limit in schema or "enum" in schema, path


def test_every_rule_says_what_to_do() -> None:
    messages = [
        rule["message"] for _, schema in leaves(crd.schema()) for rule in schema.get("x-kubernetes-validations", [])
    ]
    assert len(messages) > 25
    assert [message for message in messages if "; " not in message] == []


def test_pods_can_ask_for_nothing_that_a_baseline_namespace_forbids() -> None:
    names = {path.rsplit(".", 1)[-1] for path, _ in leaves(crd.schema()["properties"]["spec"])}
    assert not names & {
        "hostPath",
        "hostNetwork",
        "hostIPC",
        "hostPID",
        "privileged",
        "securityContext",
        "capabilities",
    }


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_valid_and_hold_no_unknown_field(path: Path) -> None:
    raw = yaml.safe_load(path.read_text())
    spec = validation.parse(raw)
    assert isinstance(spec, SpecDecodeDeploymentSpec)
    written = json.loads(json.dumps(raw["spec"]))
    assert {**spec.written(), "restart": ""} == {**written, "restart": ""}


def test_the_full_example_sets_every_field_but_the_alternatives() -> None:
    raw = yaml.safe_load((EXAMPLES[0].parent / "full.yaml").read_text())
    unset = [path for path, _ in leaves(crd.schema()["properties"]["spec"]) if not _is_set(path, raw["spec"])]
    roots = {path for path in unset if not any(path != other and path.startswith(f"{other}.") for other in unset)}
    alternatives = {"persistentVolumeClaim", "image", "route", "valueFrom", "value"}
    special = {"schedulerName", "runtimeClassName", "tolerationSeconds"}
    assert {path.rsplit(".", 1)[-1] for path in roots} <= alternatives | special


def _is_set(path: str, value: Any) -> bool:
    """Whether some item of the resource has the field; `[]` stands for every item of a list or map."""
    head, _, rest = path.removeprefix(".").partition(".")
    name = head.removesuffix("[]")
    if not path:
        return True
    if isinstance(value, list):
        return any(_is_set(path, item) for item in value)
    if name not in value:
        return False
    return head.endswith("[]") or not rest or _is_set(f".{rest}", value[name])


def test_a_status_of_an_older_operator_with_unknown_fields_is_read() -> None:
    status = SpecDecodeDeploymentStatus.model_validate({**STATUS, "fromTheFuture": 1})
    assert status.canary is not None
    assert (status.canary.num_speculative_tokens, status.proposal_length) == ("5", "3→5")


@pytest.mark.apiserver
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_api_server_takes_the_examples_strictly(path: Path, crd_plane: ControlPlane) -> None:
    crd_plane.kubectl("create", "--dry-run=server", "--validate=strict", "-f", str(path))


@pytest.mark.apiserver
def test_kubectl_shows_the_columns_scales_and_explains(crd_plane: ControlPlane) -> None:
    path = next(path for path in EXAMPLES if path.stem == "full")
    crd_plane.kubectl("apply", "-f", str(path))
    patch = ["patch", "sdd", "llama", "--subresource=status", "--type=merge", "-p", json.dumps({"status": STATUS})]
    crd_plane.kubectl(*patch)
    head, row = crd_plane.kubectl("get", "sdd", "llama").splitlines()
    assert " ".join(head.split()) == "NAME READY REASON MODEL STABLE CANARY WEIGHT K ACCEPT REPLICAS AGE"
    shown = "llama True CanaryAnalysing llama-70b llama-6b7f9c42 llama-9d2zx4kv 5% 3→5 61% 4/4"
    assert " ".join(row.split()[:-1]) == shown
    wide = crd_plane.kubectl("get", "sdd", "llama", "-o", "wide").splitlines()[0]
    assert "TOKENS/STEP" in wide
    assert "URL" in wide
    crd_plane.kubectl("scale", "sdd", "llama", "--replicas=7")
    stored = json.loads(crd_plane.kubectl("get", "sdd", "llama", "-o", "json"))
    assert stored["spec"]["replicas"] == 7
    assert stored["status"] == STATUS, "nothing of the status is pruned"
    assert "draft tokens proposed per step" in crd_plane.kubectl("explain", "sdd.spec.speculation.numSpeculativeTokens")


@pytest.mark.apiserver
def test_nothing_but_replicas_is_written_into_a_users_spec(crd_plane: ControlPlane) -> None:
    path = next(path for path in EXAMPLES if path.stem == "minimal")
    stored = json.loads(crd_plane.kubectl("create", "--dry-run=server", "-f", str(path), "-o", "json"))
    assert stored["spec"] == {**yaml.safe_load(path.read_text())["spec"], "replicas": 1}
