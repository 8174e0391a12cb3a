"""Decides what a node drain may take: one pod of the stable revision at a time."""

from collections.abc import Mapping
from typing import Any

from specfleet.api import names
from specfleet.resources.owned import metadata


def disruption_budget(sdd: Mapping[str, Any], stable_revision: str) -> dict[str, Any]:
    """PodDisruptionBudget `<deployment>` on the pods of `stable_revision`.

    Pods that are not healthy may always be evicted, so a broken fleet never blocks a drain.
    """
    deployment = sdd["metadata"]["name"]
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(sdd, deployment, names.labels(deployment)),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": {names.DEPLOYMENT: deployment, names.REVISION: stable_revision}},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
