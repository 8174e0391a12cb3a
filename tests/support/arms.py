"""Revisions and pods as the rollout sees them, read from objects as the API server gives them."""

from typing import Any

from specfleet.api import names
from specfleet.rollout.world import Objects, Pod, Revision, pod, revisions


def raw_pod(
    revision: str, name: str, *, ready: bool = True, serving: bool = True, going: bool = False, cost: int = 0
) -> dict[str, Any]:
    """A pod object of a revision; one that does not serve is drained, at `cost`."""
    notes = {} if serving else {names.DRAINING_SINCE: "2026-01-01T00:00:00Z", names.DELETION_COST: str(cost)}
    meta = {
        "name": name,
        "uid": name,
        "labels": {names.REVISION: revision, **({names.SERVING: "true"} if serving else {})},
        "annotations": notes,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if going else {}),
    }
    status = {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    return {"kind": "Pod", "metadata": meta, "spec": {"nodeName": "node"}, "status": status}


def one_pod(name: str, **how: Any) -> Pod:
    """One pod."""
    return pod(raw_pod("", name, **how))


def arm(name: str, wanted: int = 0, *pods: dict[str, Any], identity: str = "", **notes: str) -> Revision:
    """One revision; `notes` are its annotations by the short name: promoted, aborted."""
    meta = {
        "name": name,
        "uid": name,
        "annotations": {f"{names.GROUP}/{key}": value for key, value in notes.items()}
        | {names.IDENTITY: identity or name},
    }
    record = {"kind": "ControllerRevision", "metadata": meta, "revision": 1, "data": {}}
    deployments = {name: {"kind": "Deployment", "metadata": {"name": name}, "spec": {"replicas": wanted}}}
    return revisions(Objects({name: record}, deployments if wanted or pods else {}, pods=pods))[name]
