"""The volumes of a vLLM pod and where they are mounted: shared memory, cache, and weights that are not downloaded."""

from typing import Any

from specfleet.api.v1alpha1 import Cache, Source, SpecDecodeDeploymentSpec
from specfleet.resources import rocm, vllm


def volumes(spec: SpecDecodeDeploymentSpec) -> list[dict[str, Any]]:
    """The pod's `volumes`."""
    shm = {"medium": "Memory", "sizeLimit": rocm.shared_memory(spec.tensor_parallel_size)}
    weights = [{"name": name, **_weights(source)} for name, _, source in _mounted(spec)]
    return [{"name": "shm", "emptyDir": shm}, {"name": "cache", **_cache(spec.pod.cache)}, *weights]


def mounts(spec: SpecDecodeDeploymentSpec) -> list[dict[str, Any]]:
    """The container's `volumeMounts`, one for each volume."""
    weights = [{"name": name, "mountPath": path, "readOnly": True} for name, path, _ in _mounted(spec)]
    return [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "cache", "mountPath": rocm.CACHE}, *weights]


def _mounted(spec: SpecDecodeDeploymentSpec) -> list[tuple[str, str, Source]]:
    """(volume, path, source) of the target and the draft, where they come as a volume."""
    draft = spec.speculation.draft
    sources = [("target", vllm.TARGET, spec.model.source)]
    if draft:
        sources.append(("draft", vllm.DRAFT, draft.source))
    return [entry for entry in sources if not entry[2].hugging_face]


def _weights(source: Source) -> dict[str, Any]:
    if source.persistent_volume_claim:
        return {"persistentVolumeClaim": {"claimName": source.persistent_volume_claim.claim_name, "readOnly": True}}
    if source.image:
        return {"image": {"reference": source.image.reference, "pullPolicy": source.image.pull_policy}}
    raise ValueError("a source holds one of huggingFace, persistentVolumeClaim, image")


def _cache(cache: Cache | None) -> dict[str, Any]:
    if cache and cache.persistent_volume_claim:
        return {"persistentVolumeClaim": {"claimName": cache.persistent_volume_claim.claim_name}}
    limit = cache.empty_dir.size_limit if cache and cache.empty_dir else None
    return {"emptyDir": {} if limit is None else {"sizeLimit": str(limit)}}
