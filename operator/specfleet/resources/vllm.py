"""The vLLM command line (0.32): the model, the flags that follow from the spec, and the user's own arguments last."""

import json
from typing import Any

from specfleet.api import names
from specfleet.api.v1alpha1 import Source, SpecDecodeDeploymentSpec, Speculation

TARGET = "/models/target"
DRAFT = "/models/draft"

# vLLM clamps a row's end to --max-num-seqs and wants every row to have one; this is above any batch.
OPEN_END = 65536


def command(spec: SpecDecodeDeploymentSpec) -> list[str]:
    """`vllm serve MODEL`, spelled out: it works in every vLLM image, and makes vLLM process 1, which gets SIGTERM."""
    return ["vllm", "serve", model_of(spec.model.source, TARGET)]


def arguments(deployment: str, spec: SpecDecodeDeploymentSpec) -> list[str]:
    """The flags after the model, in a fixed order; `engine.args` last."""
    engine = spec.engine
    flags: dict[str, object] = {
        "--served-model-name": spec.model.name(deployment),
        "--port": names.PORT,
        "--revision": revision_of(spec.model.source),
        "--tensor-parallel-size": spec.tensor_parallel_size,
        "--attention-backend": engine.attention_backend,
        "--max-num-seqs": engine.max_num_seqs,
        "--shutdown-timeout": spec.pod.drain_seconds,
        "--speculative-config": speculative_config(spec.speculation),
    }
    written = [text for flag, value in flags.items() if value is not None for text in (flag, str(value))]
    return [*written, *engine.args]


def speculative_config(speculation: Speculation) -> str | None:
    """vLLM's --speculative-config as compact JSON in a fixed key order, or None where nothing is speculated."""
    if speculation.method == "none":
        return None
    draft = speculation.draft.source if speculation.draft else None
    config: dict[str, Any] = {
        "method": speculation.method,
        "model": model_of(draft, DRAFT) if draft else None,
        "revision": revision_of(draft) if draft else None,
        "num_speculative_tokens": speculation.num_speculative_tokens,
        "num_speculative_tokens_per_batch_size": batch_schedule(speculation),
    }
    config = {key: value for key, value in config.items() if value is not None}
    return json.dumps({**config, **dict(sorted(speculation.options.items()))}, separators=(",", ":"))


def batch_schedule(speculation: Speculation) -> list[list[int]] | None:
    """Rows [first batch size, last batch size, draft tokens], both ends included; None without a schedule."""
    return [[entry.min_batch, entry.max_batch or OPEN_END, entry.tokens] for entry in speculation.schedule] or None


def model_of(source: Source, mount: str) -> str:
    """What vLLM is given as a model: a Hugging Face repository, or the path of what is mounted at `mount`."""
    if source.hugging_face:
        return source.hugging_face.repo
    # Joined here rather than mounted as a subPath: the links inside a Hugging Face cache leave the snapshot folder.
    mounted = source.persistent_volume_claim or source.image
    path = mounted.path if mounted else None
    return f"{mount}/{path.strip('/')}" if path else mount


def revision_of(source: Source) -> str | None:
    """The pinned revision of a Hugging Face source; None if it is not pinned or not from there."""
    return source.hugging_face.revision if source.hugging_face else None
