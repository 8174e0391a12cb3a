"""What two revisions have in common, from their frozen payloads: how they draft, answer and take memory. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from specfleet.api import engine_args
from specfleet.rollout.world import Raw

DRAFTING = ("method", "numSpeculativeTokens", "schedule")  # equal in both arms, or acceptance is no comparison
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
#: Arguments of vLLM by which two servers of one model may rightly answer differently: weights, numbers, template.
ANSWERING = (
    "--quantization", "-q", "--dtype", "--kv-cache-dtype", "--load-format", "--hf-overrides", "--hf-config-path",
    "--tokenizer", "--tokenizer-mode", "--tokenizer-revision", "--code-revision", "--chat-template",
    "--chat-template-content-format", "--default-chat-template-kwargs", "--generation-config",
    "--override-generation-config", "--reasoning-parser", "--rope-scaling", "--rope-theta",
)  # fmt: skip
#: Ways of the speculative config to keep drafted tokens that the target would not have taken.
LOSSY = ("synthetic", "typical_acceptance_sampler")


def drafts_alike(stable: Raw, canary: Raw) -> bool:
    """Whether acceptance compares: both draft by the same means, and their counters say what was verified."""
    alike = all(stable.get(key) == canary.get(key) for key in DRAFTING)
    return alike and not any(hides(_speculative_config(payload)) for payload in (stable, canary))


def answers_alike(stable: Raw, canary: Raw) -> bool:
    """Whether both promise the same greedy answers: the same weights at the same revision, the same quantisation and
    template, and speculation that keeps to what the target says. A revision that is not pinned counts as the same:
    should the weights have moved, the answers tell."""
    same = stable.get("target") is not None and stable.get("target") == canary.get("target")
    return same and _answering(stable) == _answering(canary) and not any(map(_lossy, (stable, canary)))


def hides(config: Mapping[str, Any]) -> bool:
    """Whether a speculative config, or its options, makes vLLM count what is no acceptance."""
    return any(config.get(key) == value for key, value in HIDING.items())


def predicted_loss(stable: Raw, canary: Raw) -> float | None:
    """Percent of stable's KV cache that a canary's may lack.

    0 where they differ in nothing that takes memory, what a drafter takes where they draft by other means, and None
    where the engine itself is another: then nobody knows from outside.
    """
    if _engine(stable) != _engine(canary):
        return None
    return 0.0 if _drafter(stable) == _drafter(canary) else float(TAKES.get(str(canary.get("method")), 0))


def _answering(payload: Raw) -> list[tuple[str, str]]:
    """The user's arguments that answers may depend on, with their values; also under a prefix, or a dotted key."""
    args = tuple(payload.get("args", ()))
    found = []
    for argument in engine_args.parse(args):
        if any(flag == argument.name or flag.startswith(argument.name) for flag in ANSWERING):
            follows = args[argument.index + 1 : argument.index + 2] if argument.value is None else (argument.value,)
            found.append((argument.flag.replace("_", "-"), *follows))
    return sorted(found)


def _lossy(payload: Raw) -> bool:
    return any(value in LOSSY for value in _speculative_config(payload).values())


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
