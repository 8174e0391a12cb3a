"""The SpecDecodeDeployment that scenarios start from: simulated servers that speculate with EAGLE-3."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

DRAFTER = "RedHatAI/Qwen3-8B-speculator.eagle3"
EAGLE3: dict[str, Any] = {
    "model": {"source": {"huggingFace": {"repo": "Qwen/Qwen3-8B"}}},
    "speculation": {
        "method": "eagle3",
        "draft": {"source": {"huggingFace": {"repo": DRAFTER}}},
        "numSpeculativeTokens": 3,
    },
}
# Short blocks and wide margins, so that a minute is enough. In production keep the defaults: blocks of a minute and
# margins of 5 percent, which a handful of pods needs an hour or more of traffic to prove.
ANALYSIS = {
    "scrapeSeconds": 1,
    "blockSeconds": 3,
    "maxSeconds": 300,
    "margins": {"speedPercent": 15, "errorPoints": 5},
}


def manifest(
    name: str,
    replicas: int = 2,
    weights: Sequence[int] = (33,),
    pod: Mapping[str, Any] | None = None,
    traffic: Mapping[str, Any] | None = None,
    **rollout: Any,
) -> dict[str, Any]:
    """A fleet of simulated servers, EAGLE-3 with k = 3, one GPU each, that surges one pod; more of its spec. It is the
    caller's to change: no two share a part."""
    spec = {
        "replicas": replicas,
        **EAGLE3,
        "engine": {"image": "specfleet.dev/vllm-sim:v0.32.0"},
        "accelerator": {"count": 1, "products": ["MI300X"]},
        "pod": {"startupSeconds": 60, "drainSeconds": 30, **(pod or {})},
        "traffic": dict(traffic or {}),
        "rollout": {
            "steps": [{"weight": weight, "minSeconds": 5} for weight in weights],
            "maxSurge": 1,
            "retainSeconds": 10,
            "analysis": ANALYSIS,
            **rollout,
        },
    }
    kind = {"apiVersion": "specfleet.dev/v1alpha1", "kind": "SpecDecodeDeployment"}
    return {**kind, "metadata": {"name": name}, "spec": deepcopy(spec)}
