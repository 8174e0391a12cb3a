"""What counts as a difference between what we want and what lives."""

import copy
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.resources.owned import differs, is_ours, owner_reference, quantity
from specfleet.resources.revision import render
from specfleet.resources.service import stable_service
from specfleet.resources.workload import deployment

KEYS = st.sampled_from(["image", "labels", "limits", "name", "spec", "selector", "args", "x"])
LEAVES = st.one_of(st.booleans(), st.integers(-5, 5), st.text("ab", min_size=1, max_size=3), st.just("1Gi"))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(KEYS, inner, max_size=4),
        st.lists(inner, max_size=3),
        st.lists(st.fixed_dictionaries({"name": st.sampled_from("abc")}, optional={"value": inner}), unique_by=str).map(
            lambda entries: list({entry["name"]: entry for entry in entries}.values())
        ),
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(["spec", "data", "env", "resources", "containers"]), VALUES, max_size=4)


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in _leaves(inner, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, inner in enumerate(value) for leaf in _leaves(inner, (*path, index))]
    return [path]


def _without(value: Any, path: tuple[Any, ...]) -> Any:
    pruned = copy.deepcopy(value)
    inner = pruned
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return pruned


@settings(max_examples=200, deadline=None, derandomize=True)
@given(OBJECTS)
def test_an_object_does_not_differ_from_itself(wanted):
    assert differs(wanted, copy.deepcopy(wanted)) is None


@settings(max_examples=200, deadline=None, derandomize=True)
@given(OBJECTS, st.data())
def test_any_removed_leaf_is_a_difference(wanted, data):
    leaves = _leaves(wanted)
    if leaves:
        assert differs(wanted, _without(wanted, data.draw(st.sampled_from(leaves)))) is not None


def test_any_removed_leaf_of_a_real_deployment_is_a_difference(sdd, load):
    wanted = deployment(sdd, "llama-abc", render("llama", "llama-abc", load("full")), 2)
    leaves = _leaves(wanted)
    assert len(leaves) > 100
    assert [path for path in leaves if differs(wanted, _without(wanted, path)) is None] == []


def test_what_the_api_server_defaults_and_others_add_is_theirs(sdd, load):
    wanted = deployment(sdd, "llama-abc", render("llama", "llama-abc", load("full")), 2)
    live = copy.deepcopy(wanted)
    live["metadata"].update(resourceVersion="7", annotations={"deployment.kubernetes.io/revision": "1"})
    live["metadata"]["labels"]["theirs"] = "x"
    pod = live["spec"]["template"]["spec"]
    pod["dnsPolicy"] = "ClusterFirst"
    container = pod["containers"][0]
    container["env"].insert(0, {"name": "THEIRS", "value": "x"})
    container["ports"].insert(0, {"containerPort": 9})
    container["volumeMounts"].append({"name": "theirs", "mountPath": "/theirs"})
    container["startupProbe"]["successThreshold"] = 1
    pod["containers"].insert(0, {"name": "sidecar", "image": "x"})
    pod["volumes"].insert(0, {"name": "theirs", "emptyDir": {}})
    assert differs(wanted, live) is None


def test_a_difference_says_where_and_what(sdd, load):
    wanted = deployment(sdd, "llama-abc", render("llama", "llama-abc", load("minimal")), 2)
    live = copy.deepcopy(wanted)
    live["spec"]["replicas"] = 3
    assert differs(wanted, live) == "spec.replicas: 3 -> 2"
    live["spec"]["replicas"] = 2
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    assert differs(wanted, live) == (
        "spec.template.spec.containers[vllm].image: 'other' -> 'vllm/vllm-openai-rocm:v0.32.0'"
    )


def test_a_foreign_key_in_a_services_selector_is_a_difference(sdd):
    wanted = stable_service(sdd, None)
    live = copy.deepcopy(wanted)
    live["spec"]["selector"]["theirs"] = "x"
    assert (differs(wanted, live) or "").startswith("spec.selector: ")
    assert differs(stable_service(sdd, None), stable_service(sdd, "llama-abc")) is not None


def test_a_list_without_keys_is_compared_whole():
    assert differs({"args": ["a"]}, {"args": ["a", "b"]}) is not None
    assert differs({"args": ["a", "b"]}, {"args": ["b", "a"]}) is not None


@pytest.mark.parametrize(
    ("mine", "live", "same"),
    [
        ("1000m", "1", True),
        ("1Gi", "1024Mi", True),
        (4, "4", True),
        ("1e3", "1k", True),
        ("0.5", "500m", True),
        ("1G", "1Gi", False),
        ("1", "2", False),
        ("1", None, False),
        ("1", "one", False),
    ],
)
def test_amounts_are_compared_by_value(mine, live, same):
    wanted = {"resources": {"limits": {"cpu": mine}}}
    assert (differs(wanted, {"resources": {"limits": {"cpu": live}}}) is None) is same
    assert (differs({"sizeLimit": mine}, {"sizeLimit": live}) is None) is same


def test_amounts_elsewhere_are_text():
    assert differs({"data": {"a": "1000m"}}, {"data": {"a": "1"}}) is not None


@pytest.mark.parametrize("empty", ["", [], {}, None])
def test_what_the_api_server_does_not_store_is_not_missed(empty):
    assert differs({"spec": {"x": empty}}, {"spec": {}}) is None


@pytest.mark.parametrize("zero", [0, False])
def test_zero_and_false_are_missed(zero):
    assert differs({"spec": {"x": zero}}, {"spec": {}}) is not None


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("2Ei", 2 * Decimal(1024) ** 6),
        ("2E", Decimal(2) * 10**18),
        ("1E2", 100),
        ("3n", Decimal("3e-9")),
        ("1.5.", None),
    ],
)
def test_a_quantity_is_read_as_kubernetes_does(text, amount):
    assert quantity(text) == amount


def test_an_object_is_ours_only_by_the_controller_reference(sdd):
    reference = owner_reference(sdd)
    uid = sdd["metadata"]["uid"]
    assert is_ours({"metadata": {"ownerReferences": [reference]}}, uid)
    assert not is_ours({"metadata": {"ownerReferences": [{**reference, "controller": False}]}}, uid)
    assert not is_ours({"metadata": {"ownerReferences": [{**reference, "uid": "other"}]}}, uid)
    assert not is_ours({"metadata": {}}, uid)
