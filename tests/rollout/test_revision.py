"""Identity: which edits make a revision, and that nothing else ever does."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.rollout.revision import (
    HASH_LENGTH,
    MAKES_REVISION,
    SAFE_ALPHABET,
    first_difference,
    identity,
    pick_hash,
    revision_inputs,
    short_hash,
)
from story import SPEC

#: As they were first released. A change here restarts every fleet that upgrades, so nothing writes this file anew.
GOLDEN = json.loads((Path(__file__).parent / "golden" / "revision-hashes.json").read_text())

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_the_table_names_every_field_of_the_spec():
    fields = {field.alias for field in SpecDecodeDeploymentSpec.model_fields.values()}
    assert {name for name in MAKES_REVISION if "." not in name} == fields


def test_the_table_names_only_fields_that_exist():
    for path in MAKES_REVISION:
        if "." in path:
            part, field = path.split(".")
            model = next(f for f in SpecDecodeDeploymentSpec.model_fields.values() if f.alias == part).annotation
            assert field in {item.alias for item in model.model_fields.values()}


@pytest.mark.parametrize("example", sorted(GOLDEN))
def test_an_identity_and_the_names_that_are_made_of_it_never_change(example):
    known = GOLDEN[example]
    assert identity(known["spec"]) == known["identity"]
    assert [short_hash(known["identity"], collisions) for collisions in range(3)] == known["names"]


@pytest.mark.parametrize(
    "edit",
    [
        {"replicas": 9},
        {"paused": True},
        {"revisionHistoryLimit": 7},
        {"slo": {"timePerOutputTokenMs": 40}},
        {"rollout": {"steps": [{"weight": 5}]}},
        {"traffic": {"requestTimeout": "10s"}},
        {"speculation": {**SPEC["speculation"], "tuning": {"mode": "Auto"}}},
    ],
    ids=lambda edit: next(iter(edit)),
)
def test_an_edit_beside_the_pods_makes_no_revision(edit):
    assert identity({**SPEC, **edit}) == identity(SPEC)


@pytest.mark.parametrize(
    "edit",
    [
        {"restart": "monday"},
        {"speculation": {**SPEC["speculation"], "numSpeculativeTokens": 4}},
        {"model": {"source": {"huggingFace": {"repo": "Qwen/Qwen3-14B"}}}},
        {"engine": {"args": ["--max-model-len=1024"]}},
        {"accelerator": {"count": 2}},
        {"pod": {"nodeSelector": {"zone": "a"}}},
        {"requestLog": {"enabled": True}},
    ],
    ids=lambda edit: next(iter(edit)),
)
def test_an_edit_of_the_pods_makes_a_revision(edit):
    assert identity({**SPEC, **edit}) != identity(SPEC)


def test_an_explicit_default_is_what_the_user_wrote():
    assert identity({**SPEC, "accelerator": {"count": 1}}) != identity(SPEC)


@pytest.mark.parametrize("empty", [None, "", {}, [], {"source": {}}])
def test_empty_is_absent(empty):
    model = {**SPEC["model"], "tokenSecret": empty}
    assert identity({**SPEC, "model": model, "restart": "", "engine": {}}) == identity(SPEC)


@given(json_values)
def test_the_order_of_keys_and_a_trip_through_json_do_not_matter(extra):
    spec = {"model": {"a": extra, "b": 1}, "engine": {"x": extra}}
    turned = {key: spec[key] for key in reversed(spec)}
    assert identity(json.loads(json.dumps(turned))) == identity(spec)


@given(json_values)
def test_inputs_hold_nothing_empty(extra):
    def empty(value):
        return value in (None, "", [], {}) and value is not False and value != 0

    def sound(value):
        if isinstance(value, dict):
            return all(not empty(item) and sound(item) for item in value.values())
        return all(map(sound, value)) if isinstance(value, list) else True

    assert sound(revision_inputs({"model": extra, "pod": {"a": extra}}))


@given(st.text(max_size=64), st.integers(0, 50))
def test_a_short_hash_is_eight_safe_characters(full, collisions):
    digest = short_hash(full, collisions)
    assert len(digest) == HASH_LENGTH
    assert set(digest) <= set(SAFE_ALPHABET)


def test_a_name_that_is_taken_is_a_collision_and_the_next_is_tried():
    first = short_hash("x")
    assert pick_hash("x", lambda _: False) == (first, 0)
    assert pick_hash("x", lambda candidate: candidate == first) == (short_hash("x", 1), 1)


def test_the_first_difference_is_told_with_its_path():
    old, new = {"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}
    assert first_difference(old, new) == "a.c: 2 -> 3"
    assert first_difference({}, {"a": "x"}) == "a: (unset) -> x"
    assert first_difference(old, old) == ""


def test_a_difference_in_a_list_is_told_by_the_name_of_the_item_or_by_its_place():
    old = {"containers": [{"name": "vllm", "args": ["--a", "--b"], "env": [{"name": "A", "value": "1"}]}]}
    (vllm,) = old["containers"]
    env = {"containers": [{**vllm, "env": [{"name": "B"}, *vllm["env"]]}]}
    assert first_difference(old, env) == 'containers[vllm].env[B]: (unset) -> {"name": "B"}'
    args = {"containers": [{**vllm, "args": ["--a", "--c"]}]}
    assert first_difference(old, args) == "containers[vllm].args[1]: --b -> --c"


def test_items_in_another_order_are_a_difference():
    old, new = [{"name": "a"}, {"name": "b"}], [{"name": "b"}, {"name": "a"}]
    assert first_difference({"env": old}, {"env": new}).startswith("env: ")
