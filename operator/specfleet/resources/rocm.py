"""What is known of AMD Instinct GPUs in Kubernetes, as data: device ids, placement by node labels, environment.

Device ids: `amdgpu.ids` of https://github.com/ROCm/k8s-device-plugin and the node rules of
https://github.com/ROCm/gpu-operator (August 2026). Environment: vLLM 0.32.
"""

from collections.abc import Mapping, Sequence
from typing import Any

# PCI device ids by product: the bare-metal id first, then high-frequency (HF) parts and SR-IOV virtual functions.
DEVICE_IDS: Mapping[str, tuple[str, ...]] = {
    "MI300A": ("74a0",),
    "MI300X": ("74a1", "74a9", "74bd", "74b5"),
    "MI308X": ("74a2", "74b6", "74a8", "74bc"),
    "MI325X": ("74a5", "74b9"),
    "MI350X": ("75a0", "75b0"),
    "MI350P": ("75a8",),
    "MI355X": ("75a3", "75b3"),
}

# AMD's node labeller writes both while it moves to the first; a node may carry either.
LABEL_PREFIXES = ("amd.com/gpu", "beta.amd.com/gpu")

SHM_FLOOR_GIB = 8  # what vLLM's own Kubernetes page for AMD gives
SHM_GIB_PER_GPU = 2
CACHE = "/cache"


def placed(affinity: Mapping[str, Any], products: Sequence[str]) -> dict[str, Any]:
    """The user's `affinity`, narrowed to nodes whose GPUs are one of `products` (none: as the user wrote it).

    Node selector terms are ORed and the requirements inside one are ANDed, so "the user's terms and ours" is every
    pair of them. Nodes with GPUs of several products carry none of these labels and are left out.
    A product that `DEVICE_IDS` does not know is taken for a value of the product-name label (AMD_Instinct_MI300X_OAM).
    """
    if not products:
        return dict(affinity)
    try:
        return _narrowed(affinity, products)
    except (AttributeError, TypeError, ValueError):
        return dict(affinity)  # not shaped as an affinity: the API server says which field is wrong


def _narrowed(affinity: Mapping[str, Any], products: Sequence[str]) -> dict[str, Any]:
    node = dict(affinity.get("nodeAffinity") or {})
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = _both(required.get("nodeSelectorTerms") or [], _terms(products))
    node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    return {**affinity, "nodeAffinity": node}


def _terms(products: Sequence[str]) -> list[dict[str, Any]]:
    wanted = {
        "device-id": [number for product in products for number in DEVICE_IDS.get(product.upper(), ())],
        "product-name": [product for product in products if product.upper() not in DEVICE_IDS],
    }
    return [
        {"matchExpressions": [{"key": f"{prefix}.{kind}", "operator": "In", "values": values}]}
        for kind, values in wanted.items()
        if values
        for prefix in LABEL_PREFIXES
    ]


def _both(users: Sequence[Mapping[str, Any]], ours: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    if not users:
        return list(ours)
    merged: list[dict[str, Any]] = []
    for user in users:
        if not user.get("matchExpressions") and not user.get("matchFields"):
            merged.append(dict(user))  # an empty term matches no node: with ours added it would match some
            continue
        for own in ours:
            both = [*(user.get("matchExpressions") or []), *own["matchExpressions"]]
            merged.append({**user, "matchExpressions": both})
    return merged


def shared_memory(tensor_parallel_size: int) -> str:
    """Ceiling of /dev/shm, a Kubernetes quantity: RCCL and vLLM's message queues fail in the 64 MiB that a pod gets.

    Only pages in use count (against the container's memory limit), so the ceiling may be generous.
    """
    return f"{max(SHM_FLOOR_GIB, SHM_GIB_PER_GPU * tensor_parallel_size)}Gi"


def environment(startup_seconds: int, *, aiter: bool, root: bool) -> dict[str, str]:
    """The environment every vLLM container on ROCm gets; the user's own values win over these.

    startup_seconds: how long the API server waits for its engine, so that vLLM gives up no sooner than the probe.
    aiter: the attention backend is one of AITER's kernels (see `wants_aiter`).
    root: the container runs as root; otherwise HOME moves to the one directory any user id may write to, and USER is
    set since Python and torch look it up in a passwd file that does not know the id.
    """
    defaults = {
        "VLLM_ENGINE_READY_TIMEOUT_S": str(startup_seconds),
        # The default of 5 s kills ROCm workers before they have freed their memory (vllm#55632).
        "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": "30",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HOME": f"{CACHE}/huggingface",
        "VLLM_CACHE_ROOT": f"{CACHE}/vllm",  # torch.compile, inductor and Triton caches follow it
        "XDG_CACHE_HOME": CACHE,
    }
    if aiter:
        defaults["VLLM_ROCM_USE_AITER"] = "1"
    if not root:
        # Private to the container: a JIT directory shared by pods, as AITER's under HOME, can hang on a stale lock.
        defaults.update({"HOME": "/tmp", "USER": "vllm"})
    return defaults


def wants_aiter(*attention_backends: object) -> bool:
    """Whether an attention backend needs VLLM_ROCM_USE_AITER, the master switch of AITER's kernels.

    vLLM leaves the switch off. It also turns on AITER's linear, MoE and norm kernels, which are built for gfx942 and
    gfx950 only; so it is set, as vLLM's recipes for AMD do, where the user asks for an AITER backend by name, and
    nowhere else. A user's own VLLM_ROCM_USE_AITER wins.
    """
    return any(isinstance(backend, str) and backend.startswith("ROCM_AITER_") for backend in attention_backends)
