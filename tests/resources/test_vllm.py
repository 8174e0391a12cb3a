"""The command line that vLLM gets."""

import json
from typing import Any

import pytest

from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.resources import vllm

HUB = {"huggingFace": {"repo": "org/model"}}


def _spec(**parts: Any) -> SpecDecodeDeploymentSpec:
    return SpecDecodeDeploymentSpec.model_validate(
        {"model": {"source": HUB}, "speculation": {"method": "mtp"}, **parts}
    )


def _flag(arguments: list[str], flag: str) -> str | None:
    return arguments[arguments.index(flag) + 1] if flag in arguments else None


def test_every_flag_comes_before_the_users_arguments():
    arguments = vllm.arguments("qwen", _spec(engine={"args": ["--max-model-len=1024", "--enforce-eager"]}))
    assert arguments[-2:] == ["--max-model-len=1024", "--enforce-eager"]


@pytest.mark.parametrize(
    "flag", ["--revision", "--attention-backend", "--max-num-seqs"]
)  # vLLM's own default is better than one of ours
def test_what_the_user_leaves_out_is_left_to_vllm(flag):
    assert flag not in vllm.arguments("qwen", _spec())


def test_a_replica_is_split_over_all_its_gpus_unless_told_otherwise():
    assert _flag(vllm.arguments("qwen", _spec(accelerator={"count": 8})), "--tensor-parallel-size") == "8"
    two = _spec(accelerator={"count": 8}, engine={"tensorParallelSize": 2})
    assert _flag(vllm.arguments("qwen", two), "--tensor-parallel-size") == "2"


def test_the_drain_budget_is_vllms_shutdown_timeout():
    assert _flag(vllm.arguments("qwen", _spec(pod={"drainSeconds": 77})), "--shutdown-timeout") == "77"


def test_method_none_gives_no_speculative_config():
    assert "--speculative-config" not in vllm.arguments("qwen", _spec(speculation={"method": "none"}))


@pytest.mark.parametrize(
    ("source", "model"),
    [
        (HUB, "org/model"),
        ({"persistentVolumeClaim": {"claimName": "weights"}}, "/models/target"),
        ({"persistentVolumeClaim": {"claimName": "weights", "path": "a/b/"}}, "/models/target/a/b"),
        ({"image": {"reference": "registry.example.com/weights:1", "path": "a"}}, "/models/target/a"),
    ],
)
def test_the_model_is_a_repository_or_where_it_is_mounted(source, model):
    assert vllm.command(_spec(model={"source": source})) == ["vllm", "serve", model]


def test_a_mounted_model_is_served_under_the_deployments_name():
    spec = _spec(model={"source": {"persistentVolumeClaim": {"claimName": "weights"}}})
    assert _flag(vllm.arguments("qwen", spec), "--served-model-name") == "qwen"


def test_speculative_config_has_a_fixed_key_order_with_options_last_and_sorted():
    speculation = {
        "method": "eagle3",
        "draft": {"source": {"huggingFace": {"repo": "org/draft", "revision": "abc"}}},
        "numSpeculativeTokens": 4,
        "options": {"quantization": "fp8", "attention_backend": "TRITON_ATTN"},
        "schedule": [{"minBatch": 1, "maxBatch": 8, "tokens": 4}, {"minBatch": 9, "maxBatch": 64, "tokens": 0}],
    }
    config = vllm.speculative_config(_spec(speculation=speculation).speculation)
    assert config == (
        '{"method":"eagle3","model":"org/draft","revision":"abc","num_speculative_tokens":4,'
        '"num_speculative_tokens_per_batch_size":[[1,8,4],[9,64,0]],'
        '"attention_backend":"TRITON_ATTN","quantization":"fp8"}'
    )


def test_an_open_schedule_ends_above_any_batch_that_vllm_takes():
    speculation = {
        "method": "ngram",
        "numSpeculativeTokens": 3,
        "schedule": [{"minBatch": 1, "maxBatch": 4, "tokens": 3}, {"minBatch": 65536, "tokens": 1}],
    }
    config = json.loads(vllm.speculative_config(_spec(speculation=speculation).speculation) or "")
    first, last, tokens = config["num_speculative_tokens_per_batch_size"][-1]
    assert first <= last
    assert tokens == 1
