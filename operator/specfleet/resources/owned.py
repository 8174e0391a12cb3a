"""Decides what marks an object as ours, and whether a live object lacks something that we want on it."""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from specfleet.api import names

# Lists that the API server merges by key: others may add entries, ours must be there.
KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "ownerReferences": ("uid",),
    "ports": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}

AMOUNTS = ("sizeLimit", "divisor")  # outside of resources
_QUANTITY = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))([eE][+-]?\d+|[KMGTPE]i|[numkMGTPE]|)$")
_SCALE = {
    **{suffix: Decimal(10) ** power for suffix, power in zip("num", (-9, -6, -3), strict=True)},
    **{suffix: Decimal(10) ** power for suffix, power in zip("kMGTPE", range(3, 19, 3), strict=True)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
    "": Decimal(1),
}


def owner_reference(sdd: Mapping[str, Any]) -> dict[str, Any]:
    """The controller reference to a SpecDecodeDeployment (an object with metadata.name and metadata.uid)."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": sdd["metadata"]["name"],
        "uid": sdd["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_ours(live: Mapping[str, Any], uid: str) -> bool:
    """Whether the controller of `live` is the SpecDecodeDeployment with this uid; nothing else may be written to."""
    references = live.get("metadata", {}).get("ownerReferences") or []
    return any(reference.get("controller") and reference.get("uid") == uid for reference in references)


def metadata(sdd: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Metadata of an object that the SpecDecodeDeployment owns, in its namespace."""
    return {
        "name": name,
        "namespace": sdd["metadata"]["namespace"],
        "labels": dict(labels),
        "ownerReferences": [owner_reference(sdd)],
    }


def differs(desired: Mapping[str, Any], live: Mapping[str, Any]) -> str | None:
    """The first thing that `live` lacks of `desired`, as "path: live -> desired", or None if it has everything.

    Only fields that `desired` has are compared: what the API server defaulted or others added is theirs. Lists in
    `KEYS` are matched entry by entry, other lists whole; amounts under resources and sizeLimit by value. The exception
    is `spec.selector`, which must be equal: one foreign key in a Service's selector cuts its traffic.
    """
    return _mapping((), desired, live)


def _value(path: tuple[str, ...], desired: Any, live: Any) -> str | None:
    if type(desired) is type(live) and desired == live:
        return None  # most of it, compared at once
    if path == ("spec", "selector"):
        return None if desired == live else _text(path, desired, live)
    if isinstance(desired, Mapping) and isinstance(live, Mapping):
        return _mapping(path, desired, live)
    if _is_list(desired) and _is_list(live):
        return _list(path, desired, live)
    return None if _equal(path, desired, live) else _text(path, desired, live)


def _mapping(path: tuple[str, ...], desired: Mapping[str, Any], live: Mapping[str, Any]) -> str | None:
    found = (_value((*path, key), value, live.get(key)) for key, value in desired.items())
    return next((text for text in found if text), None)


def _list(path: tuple[str, ...], desired: Sequence[Any], live: Sequence[Any]) -> str | None:
    keys = KEYS.get(path[-1])
    if keys and all(isinstance(item, Mapping) and all(key in item for key in keys) for item in desired):
        return _keyed(path, keys, desired, live)
    if len(desired) != len(live):
        return _text(path, desired, live)
    pairs = enumerate(zip(desired, live, strict=True))
    found = (_value((*path[:-1], f"{path[-1]}[{index}]"), mine, theirs) for index, (mine, theirs) in pairs)
    return next((text for text in found if text), None)


def _keyed(path: tuple[str, ...], keys: tuple[str, ...], desired: Sequence[Any], live: Sequence[Any]) -> str | None:
    theirs = {tuple(item.get(key) for key in keys): item for item in live if isinstance(item, Mapping)}
    for mine in desired:
        identity = tuple(mine[key] for key in keys)
        entry = (*path[:-1], f"{path[-1]}[{'/'.join(map(str, identity))}]")
        found = _value(entry, mine, theirs.get(identity))
        if found:
            return found
    return None


def _equal(path: tuple[str, ...], desired: Any, live: Any) -> bool:
    if live is None and (desired is None or desired == "" or desired == [] or desired == {}):
        return True  # the API server does not store these
    if isinstance(desired, bool) or isinstance(live, bool):
        return desired is live
    if "resources" in path or path[-1] in AMOUNTS:
        mine, theirs = quantity(desired), quantity(live)
        return mine == theirs if mine is not None else bool(desired == live)
    return bool(desired == live)


def quantity(value: Any) -> Decimal | None:
    """The amount that a Kubernetes quantity stands for ("1Gi", "250m", "1e3", 4), or None if it is not one."""
    match = _QUANTITY.match(str(value))
    if not match:
        return None
    number, suffix = match.groups()
    if suffix[-1:].isdigit():
        return Decimal(number + suffix)
    return Decimal(number) * _SCALE[suffix]


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _text(path: tuple[str, ...], desired: Any, live: Any) -> str:
    return f"{'.'.join(path)}: {_short(live)} -> {_short(desired)}"


def _short(value: Any) -> str:
    text = "absent" if value is None else repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
