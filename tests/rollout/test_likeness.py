"""Whether two revisions' acceptance compares, and which KV cache a canary's pods should have."""

import pytest

from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.resources.revision import render
from specfleet.rollout.likeness import drafts_alike, predicted_loss
from story import _merged

EAGLE = {
    "model": {"source": {"huggingFace": {"repo": "Qwen/Qwen3-8B"}}},
    "speculation": {
        "method": "eagle3",
        "draft": {"source": {"huggingFace": {"repo": "RedHatAI/Qwen3-8B-speculator.eagle3"}}},
        "numSpeculativeTokens": 3,
    },
}
OTHER_DRAFT = {"draft": {"source": {"huggingFace": {"repo": "yuhuili/EAGLE3-Qwen3"}}}}
NONE = {"method": "none", "draft": None, "numSpeculativeTokens": None}


def payload(**changes):
    spec = SpecDecodeDeploymentSpec.model_validate(_merged(EAGLE, changes))
    return render("qwen", "qwen-2345678b", spec)


@pytest.mark.parametrize(
    ("changes", "loss"),
    [
        ({}, 0),
        ({"speculation": {"numSpeculativeTokens": 5}}, 0),
        ({"speculation": {"schedule": [{"minBatch": 1, "tokens": 2}]}}, 0),
        ({"engine": {"image": "vllm/vllm-openai-rocm:v0.33.0"}}, 0),
        ({"pod": {"startupSeconds": 900, "drainSeconds": 5}}, 0),
        ({"speculation": OTHER_DRAFT}, 10),
        ({"speculation": {"options": {"quantization": "fp8"}}}, 10),
        ({"speculation": {"method": "draft_model"}}, 50),
        ({"speculation": {"method": "dflash"}}, 20),
        ({"speculation": {"method": "ngram", "draft": None}}, 0),
        ({"speculation": NONE}, 0),
        ({"engine": {"args": ["--gpu-memory-utilization=0.8"]}}, None),
        ({"engine": {"maxNumSeqs": 64}}, None),
        ({"engine": {"env": [{"name": "VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", "value": "1"}]}}, None),
        ({"accelerator": {"count": 2}}, None),
        ({"accelerator": {"products": ["MI300X"]}}, None),
        ({"model": {"source": {"huggingFace": {"repo": "Qwen/Qwen3-8B-FP8"}}}}, None),
    ],
)
def test_what_a_canary_may_lack_of_stables_kv_cache_follows_from_what_differs(changes, loss):
    assert predicted_loss(payload(), payload(**changes)) == loss


def test_the_first_drafter_beside_a_fleet_without_one_may_take_its_share():
    assert predicted_loss(payload(speculation=NONE), payload()) == 10


@pytest.mark.parametrize("damaged", [{}, {"template": None}, {"template": {"spec": {"containers": []}}}])
def test_payloads_that_say_nothing_predict_nothing_wrong(damaged):
    assert predicted_loss(damaged, damaged) == 0
    assert predicted_loss(damaged, payload()) is None


@pytest.mark.parametrize(
    ("stable", "canary", "alike"),
    [
        ({}, {}, True),
        ({}, {"speculation": OTHER_DRAFT}, True),
        ({}, {"speculation": {"options": {"attention_backend": "TRITON_ATTN"}}}, True),
        ({}, {"speculation": {"numSpeculativeTokens": 5}}, False),
        ({}, {"speculation": {"schedule": [{"minBatch": 1, "tokens": 2}]}}, False),
        ({}, {"speculation": NONE}, False),
    ],
)
def test_acceptance_compares_where_both_arms_draft_alike(stable, canary, alike):
    assert drafts_alike(payload(**stable), payload(**canary)) is alike


@pytest.mark.parametrize(
    "options",
    [
        {"enable_adaptive_verification": True},
        {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.9, 0.8, 0.7]},
    ],
)
def test_acceptance_that_the_counters_hide_does_not_compare_even_with_itself(options):
    hidden = {"speculation": {"options": options}}
    assert not drafts_alike(payload(**hidden), payload(**hidden))
    assert not drafts_alike(payload(), payload(**hidden))
    assert drafts_alike(*2 * [payload(speculation={"options": {"enable_adaptive_verification": False}})])
