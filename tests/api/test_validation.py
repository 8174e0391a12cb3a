"""parse is total; what is not built yet is named; advice is given."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.api.problem import Problem
from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.api.validation import findings, not_implemented, parse

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
FULL = yaml.safe_load((EXAMPLES / "full.yaml").read_text())
SEEDED = settings(derandomize=True, deadline=None)
PINNED = {"repo": "a/b", "revision": "0" * 40}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def spec(**parts: Any) -> SpecDecodeDeploymentSpec:
    minimal: dict[str, Any] = {
        "model": {"source": {"huggingFace": PINNED}},
        "speculation": {"method": "ngram", "numSpeculativeTokens": 3},
    }
    parsed = parse({"metadata": {"name": "a"}, "spec": {**minimal, **parts}})
    assert isinstance(parsed, SpecDecodeDeploymentSpec), parsed
    return parsed


def answers(raw: Any) -> None:
    parsed = parse(raw)
    if isinstance(parsed, SpecDecodeDeploymentSpec):
        not_implemented(parsed)
        findings(parsed)
    else:
        assert parsed
        assert all(isinstance(problem, Problem) and str(problem) for problem in parsed)


@settings(SEEDED)
@given(json_values)
def test_any_json_gets_an_answer(raw: Any) -> None:
    answers(raw)


@settings(SEEDED)
@given(st.dictionaries(st.sampled_from(["metadata", "spec"]), json_values))
def test_any_metadata_and_spec_get_an_answer(raw: dict[str, Any]) -> None:
    answers(raw)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner for key, item in items for inner in paths(item, (*path, key)))]


@settings(SEEDED, max_examples=300)
@given(st.sampled_from(paths(FULL["spec"])[1:]), json_values)
def test_a_full_resource_with_any_field_replaced_gets_an_answer(path: tuple[Any, ...], value: Any) -> None:
    raw = json.loads(json.dumps(FULL))
    part = raw["spec"]
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    answers(raw)


def test_lone_surrogates_and_enormous_numbers_get_an_answer() -> None:
    answers({"metadata": {"name": "\ud800"}, "spec": {**FULL["spec"], "restart": "\ud800"}})
    answers({"metadata": {"name": "a"}, "spec": {**FULL["spec"], "speculation": {"method": "ngram", "\ud800": {}}}})
    answers({"metadata": {"name": "a"}, "spec": {**FULL["spec"], "replicas": 10**400}})


def test_null_and_empty_mean_absent() -> None:
    empty = spec(restart="", slo=None, engine={"image": "", "args": [], "env": None}, traffic={"hostnames": []})
    assert empty.written() == {**spec().written(), "engine": {}, "traffic": {}}
    assert (empty.engine.image, empty.slo) == ("vllm/vllm-openai-rocm:v0.32.0", None)


def test_unknown_fields_are_ignored_because_the_cluster_may_be_newer() -> None:
    assert spec(fromTheFuture={"a": 1}) == spec()


def test_all_problems_are_reported_at_once() -> None:
    raw = {"metadata": {"name": "A"}, "spec": {"model": {"source": {}}, "speculation": {"method": "eagle3"}}}
    fields = [problem.field for problem in parse(raw)]  # type: ignore[union-attr]
    assert fields == [
        "metadata.name",
        "spec.model.source",
        "spec.speculation.draft",
        "spec.speculation.numSpeculativeTokens",
    ]


def test_a_problem_is_one_line_of_field_value_and_remedy() -> None:
    (problem,) = parse({"metadata": {"name": "a"}, "spec": {**FULL["spec"], "replicas": "four"}})  # type: ignore[misc]
    assert str(problem) == 'spec.replicas: "four": must be a whole number; write it without quotes and fraction'
    assert str(Problem("f", None, "is required; set it")) == "f: is required; set it"
    assert len(str(Problem("f", "x" * 999, "m"))) < 100


@pytest.mark.parametrize("name", ["a", "a-b", "a1", "a" * 40])
def test_names_that_leave_room_for_a_revision_are_fine(name: str) -> None:
    assert not isinstance(parse({**FULL, "metadata": {"name": name}}), tuple)


@pytest.mark.parametrize("name", ["", "A", "1a", "a.b", "a-", "a_b", "a" * 41, "a\n", None, 1])
def test_other_names_are_refused(name: Any) -> None:
    (problem,) = parse({**FULL, "metadata": {"name": name}})  # type: ignore[misc]
    assert problem.field == "metadata.name"


def test_what_is_accepted_but_not_built_is_named() -> None:
    full = parse(FULL)
    assert isinstance(full, SpecDecodeDeploymentSpec)
    assert not_implemented(full) == (
        "spec.speculation.tuning.mode",
        "spec.requestLog.enabled",
    )
    assert not_implemented(spec()) == ()


def block(**options: Any) -> dict[str, Any]:
    draft = {"source": {"huggingFace": PINNED}}
    return {"method": "dflash", "draft": draft, "numSpeculativeTokens": 7, **options}


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"model": {"source": {"huggingFace": {"repo": "a/b"}}}}, "spec.model.source.huggingFace.revision"),
        ({"model": {"source": {"huggingFace": {"repo": "a/b", "revision": "main"}}}}, "not a full commit hash"),
        ({"model": {"source": {"image": {"reference": "r/a:1"}}}}, "spec.model.source.image.reference has no digest"),
        ({"speculation": block(draft={"source": {"huggingFace": {"repo": "a/b"}}})}, "spec.speculation.draft.source"),
        ({"engine": {"image": "vllm/vllm-openai-rocm:nightly-rocm72"}}, "follows nightly-rocm72"),
        ({"engine": {"image": "localhost:5000/vllm"}}, "follows latest"),
        ({"engine": {"attentionBackend": "FLASH_ATTN"}}, "no decoder backend on ROCm"),
        ({"engine": {"attentionBackend": "ROCM_AITER_UNIFIED_ATTN"}, "speculation": block()}, "drafts non-causally"),
        ({"engine": {"attentionBackend": "ROCM_AITER_MLA"}, "speculation": block()}, "needs MI350X"),
        ({"speculation": block(schedule=[{"minBatch": 1, "tokens": 3}])}, "schedule is ignored by vLLM for dflash"),
        ({"speculation": {"method": "suffix"}}, "arctic-inference"),
        ({"engine": {"maxNumSeqs": 256}}, "slow down beyond 128 requests"),
        ({"engine": {"tensorParallelSize": 1}, "accelerator": {"count": 4}}, "leaves 3 of 4 devices idle"),
        ({"accelerator": {"resource": "amd.com/cpx_nps4", "count": 2}}, "splits layers over partitions"),
    ],
)
def test_advice_names_its_field_and_what_to_do(parts: dict[str, Any], said: str) -> None:
    (finding,) = findings(spec(**parts))
    assert said in finding
    assert finding.startswith("spec.")
    assert "; " in finding


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"engine": {"image": "localhost:5000/vllm:v0.32.0"}},
        {"engine": {"image": "vllm/vllm-openai-rocm@sha256:" + "0" * 64}},
        {"engine": {"attentionBackend": "TRITON_ATTN"}, "speculation": block()},
        {
            "engine": {"attentionBackend": "ROCM_AITER_UNIFIED_ATTN"},
            "speculation": block(options={"attention_backend": "TRITON_ATTN"}),
        },
        {
            "engine": {"attentionBackend": "ROCM_AITER_MLA"},
            "speculation": block(),
            "accelerator": {"products": ["MI355X"]},
        },
        {"engine": {"maxNumSeqs": 128}},
        {"model": {"source": {"persistentVolumeClaim": {"claimName": "weights"}}}},
    ],
)
def test_no_advice_where_nothing_is_wrong(parts: dict[str, Any]) -> None:
    assert findings(spec(**parts)) == ()


def test_defaults_follow_from_what_is_written() -> None:
    parsed = spec(accelerator={"count": 4})
    assert parsed.tensor_parallel_size == 4
    assert parsed.model.name("fleet") == "a/b"
    claimed = spec(model={"source": {"persistentVolumeClaim": {"claimName": "weights"}}})
    assert claimed.model.name("fleet") == "fleet"
    assert [step.weight for step in parsed.rollout.steps] == [5, 25, 50]
    assert spec(speculation={"method": "none"}).speculation.maximum == 0
    assert spec(speculation={"method": "mtp"}).speculation.maximum is None
