"""The plugin with a real kubectl against a real API server: what it says there, and what the server stores."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from harness.controlplane import ControlPlane
from specfleet.cli.app import app

pytestmark = pytest.mark.apiserver
CRD = Path(__file__).parents[2] / "crds" / "specfleet.dev_specdecodedeployments.yaml"
SPEC = {
    "model": {"source": {"huggingFace": {"repo": "Qwen/Qwen3-8B"}}},
    "speculation": {"method": "ngram", "numSpeculativeTokens": 3},
    "accelerator": {"count": 4},
}
FLEET = {
    "apiVersion": "specfleet.dev/v1alpha1",
    "kind": "SpecDecodeDeployment",
    "metadata": {"name": "llama"},
    "spec": SPEC,
}
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    """A control plane of its own, since the story begins without the CRD."""
    with ControlPlane() as plane:
        yield plane


@pytest.fixture
def run(control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The plugin; `user` is whom kubectl acts as instead of an administrator."""

    def _run(*arguments: str, user: str = "") -> Result:
        program = tmp_path / "kubectl"
        acting = f"--as={user}" if user else ""
        program.write_text(f'#!/bin/sh\nexec {control_plane._bin / "kubectl"} {acting} "$@"\n')
        program.chmod(0o755)
        monkeypatch.setenv("KUBECTL", str(program))
        monkeypatch.setenv("KUBECACHEDIR", str(tmp_path / "cache"))
        monkeypatch.setenv("COLUMNS", "120")
        return CliRunner().invoke(app, [*arguments, "--kubeconfig", str(control_plane.kubeconfig)])

    return _run


def test_from_a_cluster_without_the_crd_to_an_aborted_canary(
    run: Run, control_plane: ControlPlane, scene: Callable[[str], tuple[dict[str, Any], list[dict[str, Any]]]]
) -> None:
    missing = run("status", "llama")
    assert missing.exit_code == 1
    assert "is not known to this cluster: install specfleet's CRD there" in missing.stderr

    control_plane.kubectl("apply", "-f", str(CRD))
    control_plane.kubectl("wait", "--for=condition=Established", "-f", str(CRD), "--timeout=30s")
    assert run("status").output == "no SpecDecodeDeployment in this namespace\n"
    control_plane.kubectl("create", "-f", "-", input=json.dumps(FLEET))
    assert "no status yet: is the operator running?" in run("status", "llama").output
    assert run("status", "lama").stderr.endswith("in this namespace; did you mean llama?\n")

    status = _stored_status(scene("canary")[0])
    patch = ["patch", "sdd", "llama", "--subresource=status", "--type=merge", "-p", json.dumps({"status": status})]
    control_plane.kubectl(*patch)
    assert "llama-9d2zx4kv  canary 25%  eagle3 k=5  1/1 ready" in run("status", "llama").output
    explained = run("explain", "llama")
    assert "there is no record of it: its ConfigMap does not exist" in explained.output
    assert run("status", "llama", "--timeout", "0s").exit_code == 3
    assert run("pause", "llama").exit_code == 0
    assert run("abort", "llama").exit_code == 0
    stored = json.loads(control_plane.kubectl("get", "sdd", "llama", "-o", "json", "--show-managed-fields"))
    action = stored["spec"]["rollout"]["action"]
    assert (stored["spec"]["paused"], action["type"], action["revision"]) == (True, "Abort", "llama-9d2zx4kv")
    assert "specfleet-cli" in {entry["manager"] for entry in stored["metadata"]["managedFields"]}


def test_a_user_who_may_read_pods_alone_sees_them_and_may_not_steer(run: Run, control_plane: ControlPlane) -> None:
    control_plane.kubectl("apply", "-f", str(CRD))
    control_plane.kubectl("wait", "--for=condition=Established", "-f", str(CRD), "--timeout=30s")
    control_plane.kubectl("apply", "-f", "-", input=json.dumps(FLEET))
    labels = {"specfleet.dev/deployment": "llama", "specfleet.dev/revision": "llama-6b7f9c42"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "llama-6b7f9c42-x", "labels": labels},
        "spec": {"containers": [{"name": "vllm", "image": "vllm"}]},
    }
    control_plane.kubectl("create", "-f", "-", input=json.dumps(pod))
    resources = "--resource=pods,specdecodedeployments.specfleet.dev"
    control_plane.kubectl("create", "role", "reader", "--verb=get,list", resources)
    control_plane.kubectl("create", "rolebinding", "reader", "--role=reader", "--user=jo")
    shown = run("status", "llama", user="jo")
    assert shown.exit_code == 0
    assert "llama-6b7f9c42-x" in shown.output
    assert "not everything could be read" in shown.output
    assert "controllerrevisions.apps is forbidden" in " ".join(shown.output.split())
    control_plane.kubectl("patch", "sdd", "llama", "--type=merge", "-p", '{"spec": {"paused": false}}')
    refused = run("pause", "llama", user="jo")
    assert refused.exit_code == 1
    assert 'User "jo" cannot patch resource' in refused.stderr


def _stored_status(resource: dict[str, Any]) -> dict[str, Any]:
    """The scene's status with what the schema wants of a condition."""
    said = [
        {"reason": "Stable", "message": "", "lastTransitionTime": "2026-09-21T00:00:00Z", **item}
        for item in resource["status"]["conditions"]
    ]
    return {**resource["status"], "conditions": said}
