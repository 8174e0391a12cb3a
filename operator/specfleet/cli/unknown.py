"""Keys of a written spec that the API server would refuse or drop, since no field is called so. Pure."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from specfleet.api.spec import SpecDecodeDeploymentSpec
from specfleet.api.structural import Schema, structural


def unknown_fields(spec: Any) -> tuple[str, ...]:
    """One sentence per key that is no field, its path first, with the field that was probably meant."""
    return tuple(_unknown(spec, _schema(), "spec"))


@cache
def _schema() -> Schema:
    return structural(SpecDecodeDeploymentSpec)


def _unknown(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if isinstance(value, list) and isinstance(items := schema.get("items"), Mapping):
        for index, item in enumerate(value):
            yield from _unknown(item, dict(items), f"{path}[{index}]")
    fields = schema.get("properties")
    if not isinstance(value, Mapping) or not fields or schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    for key, item in value.items():
        if key in fields:
            yield from _unknown(item, fields[key], f"{path}.{key}")
        else:
            yield f"{path}.{key}: is not a field; {_meant(str(key), fields)}"


def _meant(key: str, fields: Mapping[str, Any]) -> str:
    folded = {field.lower(): field for field in fields}
    near = get_close_matches(key.replace("_", "").lower(), folded, n=1)
    return f"did you mean {folded[near[0]]}?" if near else "remove it"
