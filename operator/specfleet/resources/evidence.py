"""The ConfigMap that carries a rollout's evidence over restarts of the operator, and whether one can be believed."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from specfleet.api import names
from specfleet.resources.owned import metadata

CHECKSUM = "checksum"  # the one key of `data` that is not evidence
EVIDENCE = "evidence"  # the blocks
COMPARISON = "compared"  # whom they compare, and by which policy


def evidence_map(sdd: Mapping[str, Any], data: Mapping[str, str]) -> dict[str, Any]:
    """ConfigMap `<deployment>-evidence` with `data` and a checksum over it; ValueError if `data` has that key."""
    if CHECKSUM in data:
        raise ValueError(f"evidence may not use the key {CHECKSUM!r}")
    deployment = sdd["metadata"]["name"]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(sdd, names.evidence_name(deployment), names.labels(deployment)),
        "data": {**data, CHECKSUM: _checksum(data)},
    }


def read_evidence(configmap: Mapping[str, Any]) -> Mapping[str, str] | None:
    """The evidence in `configmap`, or None when its checksum is missing or does not hold (edited or cut short)."""
    data = dict(configmap.get("data") or {})
    checksum = data.pop(CHECKSUM, None)
    if not all(isinstance(item, str) for entry in data.items() for item in entry):
        return None  # of a file: no API server lets it in
    return data if checksum == _checksum(data) else None


def _checksum(data: Mapping[str, str]) -> str:
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
