"""The Deployment of a revision, made from what the revision froze and nothing else."""

from collections.abc import Mapping
from typing import Any

from specfleet.api import names
from specfleet.resources.owned import metadata

PULL_SECONDS = 600  # a ROCm image is 7 to 22 GB compressed; the start-up budget begins after the pull


def deployment(sdd: Mapping[str, Any], revision_name: str, payload: Mapping[str, Any], replicas: int) -> dict[str, Any]:
    """Deployment `revision_name` with `replicas` pods of the frozen `payload` (see `revision.render`).

    The template never changes, so the strategy only says that, if it did, a pod would go before its GPUs are given on.
    """
    name = sdd["metadata"]["name"]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(sdd, revision_name, names.revision_labels(name, revision_name)),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {names.DEPLOYMENT: name, names.REVISION: revision_name}},
            "template": payload["template"],
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "progressDeadlineSeconds": payload["startupSeconds"] + PULL_SECONDS,
            "revisionHistoryLimit": 0,
        },
    }
