"""What two revisions have in common: does their acceptance compare, and which KV cache should the canary have? Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from specfleet.rollout.world import Raw, Revision

COMPARED = ("method", "numSpeculativeTokens", "schedule")  # equal in both arms, or acceptance is no comparison
#: With these vLLM counts draft tokens that it never verified (vllm#47808), or invents accepted ones for a benchmark.
HIDING = {"enable_adaptive_verification": True, "rejection_sample_method": "synthetic"}
#: Percent of the KV cache that a drafter takes at most, its weights included, where it fits its target: EAGLE has one
#: layer where the target has 32 or more (3 %), block drafters 5 of 36 (14 %), a model of 0.6 B beside one of 8 B takes
#: 0.77 of the target's KV cache for every token (arXiv 2601.11580), which leaves 56 % of the tokens.
TAKES = {"mtp": 10, "eagle": 10, "eagle3": 10, "medusa": 10, "dflash": 20, "dspark": 20, "draft_model": 50}
LENGTHS = ("num_speculative_tokens", "num_speculative_tokens_per_batch_size")
#: Flags and variables that do not bear on memory.
ASIDE = ("--speculative-config", "--served-model-name", "--shutdown-timeout")
ENVIRONMENT_ASIDE = ("VLLM_ENGINE_READY_TIMEOUT_S", "HF_HUB_OFFLINE")


def comparable(stable: Revision, canary: Revision) -> bool:
    """Whether the arms draft alike, and their counters say what was verified."""
    alike = all(stable.payload.get(key) == canary.payload.get(key) for key in COMPARED)
    return alike and not any(hides(_speculative_config(arm.payload)) for arm in (stable, canary))


def hides(config: Mapping[str, Any]) -> bool:
    """Whether a speculative config, or its options, makes vLLM count what is no acceptance."""
    return any(config.get(key) == value for key, value in HIDING.items())


def predicted_loss(stable: Raw, canary: Raw) -> float | None:
    """Percent of stable's KV cache that a canary's may lack, from the payloads of both revisions.

    0 where they differ in nothing that takes memory, what a drafter takes where they draft by other means, and None
    where the engine itself is another: then nobody knows from outside.
    """
    if _engine(stable) != _engine(canary):
        return None
    return 0.0 if _drafter(stable) == _drafter(canary) else float(TAKES.get(str(canary.get("method")), 0))


def _drafter(payload: Raw) -> Mapping[str, Any]:
    config = {key: value for key, value in _speculative_config(payload).items() if key not in LENGTHS}
    return {**config, "draft": payload.get("draft")}


def _engine(payload: Raw) -> list[object]:
    """All of a frozen payload that bears on memory but the drafter."""
    pod = (payload.get("template") or {}).get("spec") or {}
    env = [item for item in _container(payload).get("env") or () if item.get("name") not in ENVIRONMENT_ASIDE]
    words = _words(payload)
    after = [flag for flag in ASIDE if flag in words]
    aside = {at + more for at in map(words.index, after) for more in (0, 1)}
    flags = [word for at, word in enumerate(words) if at not in aside]
    placement = [pod.get("affinity"), pod.get("nodeSelector")]
    return [*(payload.get(key) for key in ("target", "resource", "count")), flags, env, placement]


def _speculative_config(payload: Raw) -> Mapping[str, Any]:
    words = [*_words(payload), "{}"]
    try:
        config = json.loads(words[words.index("--speculative-config") + 1])
    except ValueError:  # no such flag, or no JSON behind it
        return {}
    return config if isinstance(config, dict) else {}


def _words(payload: Raw) -> list[str]:
    """The container's command line."""
    container = _container(payload)
    return [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]


def _container(payload: Raw) -> Mapping[str, Any]:
    pod = (payload.get("template") or {}).get("spec") or {}
    containers: Sequence[Mapping[str, Any]] = pod.get("containers") or ({},)
    return containers[0]
