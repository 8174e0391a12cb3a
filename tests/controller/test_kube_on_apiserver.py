"""The client against a real API server: what it refuses to make."""

import pytest

from harness.controlplane import ControlPlane
from specfleet.controller.kube import KubeClient
from specfleet.controller.protocol import ApiError
from specfleet.plan import Verb, Write

pytestmark = pytest.mark.apiserver
CLAIM = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "qwen"}}}
MADE = (
    {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 8000}]}},
    {"apiVersion": "v1", "kind": "ConfigMap", "data": {"evidence": "{}"}},
    {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": CLAIM},
    {"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1, "data": {"template": {}}},
)


def create(made: dict[str, object], **more: object) -> Write:
    return Write(Verb.CREATE, {**made, "metadata": {"name": "strict"}, **more}, "a test")


@pytest.mark.parametrize("made", MADE, ids=lambda made: made["kind"])
async def test_a_field_that_does_not_exist_is_refused_at_creation(
    made: dict[str, object], control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would be dropped in silence: a slip in a builder, or an API server too old for a field."""
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
    async with KubeClient((), lambda: True) as kube:
        with pytest.raises(ApiError, match=r'400: .*strict decoding error: unknown field "speck"'):
            await kube.write("default", create(made, speck={"a": 1}))
        written = await kube.write("default", create(made))
        await kube.write("default", Write(Verb.DELETE, {**made, "metadata": written["metadata"]}, "tidies"))
