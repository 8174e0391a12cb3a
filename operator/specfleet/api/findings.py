"""Advice on a valid spec: what vLLM accepts but an operator of a fleet would want to know. Pure.

Facts hold for vLLM 0.32 on ROCm.
"""

from collections.abc import Iterator

from specfleet.api.model import Source
from specfleet.api.spec import SpecDecodeDeploymentSpec

_MOVING_TAGS = ("latest", "nightly")
_BLOCK_DRAFTERS = ("dflash", "dspark")
_IGNORE_SCHEDULE = ("dflash", "dspark", "draft_model", "medusa", "suffix")
_CAUSAL_ONLY = ("ROCM_AITER_UNIFIED_ATTN", "ROCM_AITER_MLA_SPARSE")  # no kernel for a non-causal draft block
_GFX942 = ("MI300", "MI308", "MI325")
GRAPH_CEILING = 512  # tokens of the largest captured graph


def findings(spec: SpecDecodeDeploymentSpec) -> tuple[str, ...]:
    """One sentence per finding, each with its field first; empty if there is nothing to say."""
    return (*_sources(spec), *_image(spec), *_backend(spec), *_batch(spec), *_devices(spec))


def _sources(spec: SpecDecodeDeploymentSpec) -> Iterator[str]:
    yield from _unpinned("spec.model.source", spec.model.source)
    if spec.speculation.draft is not None:
        yield from _unpinned("spec.speculation.draft.source", spec.speculation.draft.source)


def _unpinned(path: str, source: Source) -> Iterator[str]:
    if source.hugging_face is not None and not source.hugging_face.pinned:
        yield f"{path}.huggingFace.revision is not a full commit hash: weights can change under a running fleet; pin it"
    if source.image is not None and "@sha256:" not in source.image.reference:
        yield f"{path}.image.reference has no digest: weights can change under a running fleet; pin it"


def _image(spec: SpecDecodeDeploymentSpec) -> Iterator[str]:
    name = spec.engine.image.rsplit("/", 1)[-1]
    tag = name.split(":", 1)[1] if ":" in name else "latest"
    if "@sha256:" not in name and tag.startswith(_MOVING_TAGS):
        yield f"spec.engine.image follows {tag}: speculation changes with the tag; pin a version or a digest"


def _backend(spec: SpecDecodeDeploymentSpec) -> Iterator[str]:
    method = spec.speculation.method
    backend = spec.speculation.options.get("attention_backend") or spec.engine.attention_backend
    if spec.engine.attention_backend == "FLASH_ATTN":
        yield "spec.engine.attentionBackend FLASH_ATTN is no decoder backend on ROCm; use ROCM_AITER_FA or TRITON_ATTN"
    if method in _BLOCK_DRAFTERS and backend in _CAUSAL_ONLY:
        yield f"spec.speculation.method {method} drafts non-causally, which {backend} cannot; {_SET_DRAFT_BACKEND}"
    if method in _BLOCK_DRAFTERS and backend == "ROCM_AITER_MLA" and _may_be_gfx942(spec):
        yield f"spec.speculation.method {method} with ROCM_AITER_MLA needs MI350X or newer; {_SET_DRAFT_BACKEND}"
    if spec.speculation.schedule and method in _IGNORE_SCHEDULE:
        yield f"spec.speculation.schedule is ignored by vLLM for {method}; set numSpeculativeTokens alone"
    if method == "suffix":
        yield "spec.speculation.method suffix needs the package arctic-inference; check that spec.engine.image has it"


_SET_DRAFT_BACKEND = "set spec.speculation.options.attention_backend to TRITON_ATTN"


def _may_be_gfx942(spec: SpecDecodeDeploymentSpec) -> bool:
    products = spec.accelerator.products
    return not products or any(product.startswith(_GFX942) for product in products)


def _batch(spec: SpecDecodeDeploymentSpec) -> Iterator[str]:
    most, tokens = spec.engine.max_num_seqs, spec.speculation.maximum
    if most is not None and tokens and most * (tokens + 1) > GRAPH_CEILING:
        batch = GRAPH_CEILING // (tokens + 1)
        yield (
            f"spec.engine.maxNumSeqs {most} x {tokens + 1} tokens per step is above the {GRAPH_CEILING} of the largest"
            f" graph: steps slow down beyond {batch} requests; add a schedule or lower one of the two"
        )


def _devices(spec: SpecDecodeDeploymentSpec) -> Iterator[str]:
    used, count = spec.tensor_parallel_size, spec.accelerator.count
    if used < count:
        yield f"spec.engine.tensorParallelSize {used} leaves {count - used} of {count} devices idle; lower the count"
    if spec.accelerator.resource != "amd.com/gpu" and used > 1:
        yield (
            f"spec.engine.tensorParallelSize {used} splits layers over partitions ({spec.accelerator.resource}),"
            " which is untested; use 1"
        )
