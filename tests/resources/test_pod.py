"""The pod template: budgets, secrets, security, and what never appears in it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubernetes_validate import validate

from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.resources import pod
from specfleet.resources.revision import render
from specfleet.resources.workload import deployment

HUB = {"huggingFace": {"repo": "org/model", "revision": "abc"}}
CLAIM = {"persistentVolumeClaim": {"claimName": "weights", "path": "model"}}
IMAGE = {"image": {"reference": "registry.example.com/weights:1"}}
FORBIDDEN_FIELDS = {"hostPath", "hostNetwork", "hostIPC", "hostPID", "privileged", "hostPort", "procMount"}
FORBIDDEN_NAMES = {"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "amd-dcm"}


def _spec(**parts: Any) -> SpecDecodeDeploymentSpec:
    return SpecDecodeDeploymentSpec.model_validate(
        {"model": {"source": HUB}, "speculation": {"method": "mtp"}, **parts}
    )


def _template(**parts: Any) -> dict[str, Any]:
    return pod.template("qwen", "qwen-abc", _spec(**parts))


def _container(**parts: Any) -> dict[str, Any]:
    container: dict[str, Any] = _template(**parts)["spec"]["containers"][0]
    return container


def _env(**parts: Any) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in _container(**parts)["env"]}


@pytest.mark.parametrize("seconds", [30, 31, 90, 120, 121, 600, 3605, 86400])
def test_the_startup_probe_allows_the_whole_budget_and_little_more(seconds):
    probe = _container(pod={"startupSeconds": seconds})["startupProbe"]
    assert seconds <= probe["periodSeconds"] * probe["failureThreshold"] < seconds + probe["periodSeconds"]


@pytest.mark.parametrize("seconds", [30, 3600, 86400])
def test_the_progress_deadline_and_vllms_own_patience_are_not_shorter_than_the_budget(seconds, sdd):
    payload = render("llama", "llama-abc", _spec(pod={"startupSeconds": seconds}))
    assert deployment(sdd, "llama-abc", payload, 1)["spec"]["progressDeadlineSeconds"] > seconds
    assert int(_env(pod={"startupSeconds": seconds})["VLLM_ENGINE_READY_TIMEOUT_S"]) >= seconds


def test_a_pod_lives_through_prestop_drain_and_teardown():
    spec = _template(pod={"drainSeconds": 200})["spec"]
    prestop = spec["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert spec["terminationGracePeriodSeconds"] == prestop + 200 + 60


def test_a_stuck_container_is_not_given_the_drain_to_die():
    container = _container(pod={"drainSeconds": 3600})
    for probe in ("startupProbe", "livenessProbe"):
        assert container[probe]["terminationGracePeriodSeconds"] < 120


def test_gpus_are_requested_and_limited_alike_beside_the_users_resources():
    users = {"requests": {"cpu": 8, "memory": "64Gi"}, "limits": {"memory": "128Gi"}}
    resources = _container(accelerator={"resource": "amd.com/cpx_nps4", "count": 2}, pod={"resources": users})
    assert resources["resources"] == {
        "requests": {"cpu": "8", "memory": "64Gi", "amd.com/cpx_nps4": "2"},
        "limits": {"memory": "128Gi", "amd.com/cpx_nps4": "2"},
    }


def test_the_operators_labels_win_over_the_users():
    labels = _template(pod={"labels": {"specfleet.dev/serving": "false", "team": "chat"}})["metadata"]["labels"]
    assert labels["specfleet.dev/serving"] == "true"
    assert labels["specfleet.dev/revision"] == "qwen-abc"
    assert labels["team"] == "chat"


def test_the_users_environment_replaces_ours_without_a_second_entry():
    users = [{"name": "VLLM_CACHE_ROOT", "value": "/elsewhere"}, {"name": "VLLM_ROCM_USE_AITER", "value": "0"}]
    engine = {"attentionBackend": "ROCM_AITER_FA", "env": users}
    entries = _container(engine=engine)["env"]
    assert len(entries) == len({entry["name"] for entry in entries})
    assert _env(engine=engine)["VLLM_CACHE_ROOT"] == "/elsewhere"
    assert _env(engine=engine)["VLLM_ROCM_USE_AITER"] == "0"


def test_secrets_are_referred_to_by_name_and_key():
    secret = {"name": "s", "key": "k"}
    env = _env(model={"source": HUB, "tokenSecret": secret}, engine={"apiKeySecret": secret})
    assert env["HF_TOKEN"] == env["VLLM_API_KEY"] == {"secretKeyRef": secret}


@pytest.mark.parametrize(
    ("target", "draft", "offline"),
    [(HUB, None, False), (HUB, CLAIM, False), (CLAIM, HUB, False), (CLAIM, None, True), (CLAIM, IMAGE, True)],
)
def test_the_hub_is_closed_only_when_nothing_comes_from_it(target, draft, offline):
    speculation = {"method": "mtp", **({"draft": {"source": draft}} if draft else {})}
    env = _env(model={"source": target}, speculation=speculation)
    assert (env.get("HF_HUB_OFFLINE") == "1") is offline


def test_target_and_draft_are_mounted_both_and_read_only():
    speculation = {"method": "mtp", "draft": {"source": IMAGE}}
    spec = _template(model={"source": CLAIM}, speculation=speculation)["spec"]
    mounted = {mount["name"]: mount for mount in spec["containers"][0]["volumeMounts"]}
    assert mounted["target"] == {"name": "target", "mountPath": "/models/target", "readOnly": True}
    assert mounted["draft"] == {"name": "draft", "mountPath": "/models/draft", "readOnly": True}
    assert set(mounted) == {volume["name"] for volume in spec["volumes"]}


def test_a_spread_without_a_selector_counts_the_revisions_pods_and_one_with_it_stays():
    bare = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    own = {**bare, "labelSelector": {"matchLabels": {"team": "chat"}}}
    first, second = _template(pod={"topologySpreadConstraints": [bare, own]})["spec"]["topologySpreadConstraints"]
    assert first["labelSelector"]["matchLabels"]["specfleet.dev/revision"] == "qwen-abc"
    assert second == own


def test_with_a_user_id_the_pod_is_what_a_restricted_namespace_admits():
    # https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
    spec = _template(pod={"runAsUser": 1000, "supplementalGroups": [44, 109]})["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 1000
    assert spec["securityContext"]["supplementalGroups"] == [44, 109]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    own = spec["containers"][0]["securityContext"]
    assert own == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert all({"emptyDir", "persistentVolumeClaim"} & set(volume) for volume in spec["volumes"])


def test_without_a_user_id_nothing_forbids_the_images_root():
    context = _template()["spec"]["securityContext"]
    assert not {"runAsNonRoot", "runAsUser", "fsGroup"} & set(context)


SOURCES = st.sampled_from([HUB, CLAIM, IMAGE])
SPECS = st.fixed_dictionaries(
    {
        "model": st.fixed_dictionaries({"source": SOURCES}),
        "speculation": st.fixed_dictionaries(
            {"method": st.sampled_from(["none", "mtp", "ngram", "eagle3"])},
            optional={
                "numSpeculativeTokens": st.integers(1, 8),
                "draft": st.fixed_dictionaries({"source": SOURCES}),
            },
        ),
        "engine": st.fixed_dictionaries(
            {},
            optional={
                "attentionBackend": st.sampled_from(["ROCM_AITER_FA", "TRITON_ATTN"]),
                "maxNumSeqs": st.integers(1, 512),
            },
        ),
        "accelerator": st.fixed_dictionaries(
            {"count": st.integers(1, 8)},
            optional={"products": st.lists(st.sampled_from(["MI300X", "MI355X", "Other"]), max_size=3, unique=True)},
        ),
        "pod": st.fixed_dictionaries(
            {"startupSeconds": st.integers(30, 7200), "drainSeconds": st.integers(0, 600)},
            optional={
                "runAsUser": st.integers(1, 65535),
                "runAsGroup": st.integers(1, 65535),
                "cache": st.sampled_from([{}, {"emptyDir": {}}, {"persistentVolumeClaim": {"claimName": "cache"}}]),
                "tolerations": st.just([{"key": "amd.com/gpu", "operator": "Exists"}]),
            },
        ),
    }
)


def _words(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value) | set().union(*map(_words, value.values()), set())
    if isinstance(value, list):
        return set().union(*map(_words, value), set())
    return {value} if isinstance(value, str) else set()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SPECS)
def test_any_spec_renders_a_valid_pod_with_nothing_forbidden(parts):
    template = pod.template("qwen", "qwen-abc", _spec(**parts))
    assert not _words(template) & (FORBIDDEN_FIELDS | FORBIDDEN_NAMES)
    assert template["spec"]["enableServiceLinks"] is False
    assert template["spec"]["automountServiceAccountToken"] is False
    manifest = {"apiVersion": "v1", "kind": "Pod", **template}
    validate(manifest, "1.37.0", strict=True)
