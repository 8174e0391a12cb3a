"""Decides what the Services select: one per revision, for ever the same, and the one that clients name."""

from collections.abc import Mapping
from typing import Any

from specfleet.api import names
from specfleet.resources.owned import metadata


def revision_service(sdd: Mapping[str, Any], revision: str) -> dict[str, Any]:
    """Service `<revision>`: the serving pods of one revision. Its selector never changes."""
    deployment = sdd["metadata"]["name"]
    labels = names.revision_labels(deployment, revision)
    return _service(metadata(sdd, revision, labels), _selector(deployment, revision))


def stable_service(sdd: Mapping[str, Any], selector_revision: str | None) -> dict[str, Any]:
    """Service `<deployment>`: the serving pods of `selector_revision`, or of every revision when it is None."""
    deployment = sdd["metadata"]["name"]
    return _service(metadata(sdd, deployment, names.labels(deployment)), _selector(deployment, selector_revision))


def _selector(deployment: str, revision: str | None) -> dict[str, str]:
    selector = {names.DEPLOYMENT: deployment, names.SERVING: "true"}
    return selector if revision is None else {**selector, names.REVISION: revision}


def _service(meta: dict[str, Any], selector: dict[str, str]) -> dict[str, Any]:
    port = {
        "name": names.PORT_NAME,
        "port": names.PORT,
        "targetPort": names.PORT_NAME,
        "protocol": "TCP",
        "appProtocol": "http",
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {"type": "ClusterIP", "selector": selector, "ports": [port]},
    }
