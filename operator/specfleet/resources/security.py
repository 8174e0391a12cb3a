"""Security contexts: what a `baseline` namespace admits as root, and a `restricted` one with `runAsUser`."""

from typing import Any

from specfleet.api.v1alpha1 import Pod


def is_root(pod: Pod) -> bool:
    """Whether vLLM runs as root, as the ROCm image does unless a user id is given."""
    return not pod.run_as_user


def pod_context(pod: Pod) -> dict[str, Any]:
    """The pod's securityContext.

    Without root, the GPU's device files need the node's video and render groups: they go into supplementalGroups as
    numbers, since they differ by distribution. fsGroup makes the cache writable.
    """
    context: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    if not is_root(pod):
        context["runAsNonRoot"] = True
    optional = {
        "runAsUser": pod.run_as_user,
        "runAsGroup": pod.run_as_group,
        "supplementalGroups": list(pod.supplemental_groups) or None,
        "fsGroup": None if is_root(pod) else pod.run_as_group or pod.run_as_user,
        "fsGroupChangePolicy": None if is_root(pod) else "OnRootMismatch",
    }
    return {**context, **{field: value for field, value in optional.items() if value is not None}}


def container_context() -> dict[str, Any]:
    """The container's securityContext: no way up, no capabilities (a GPU needs none, only its device files)."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
