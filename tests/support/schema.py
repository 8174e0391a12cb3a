"""What an API server would refuse in an object of a structural schema, or silently take out of it."""

import re
from collections.abc import Iterator
from typing import Any

from specfleet.rollout.world import timestamp

_TYPES = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list}


def faults(value: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """One line for each: a wrong type, a limit that is broken, a field that is unknown or missing, a key twice."""
    kind = schema.get("type")
    if kind and (not isinstance(value, _TYPES[kind]) or (kind == "integer" and isinstance(value, bool))):
        yield f"{path}: {value!r} is no {kind}"
    elif kind == "object":
        yield from _object(value, schema, path)
    elif kind == "array":
        yield from _array(value, schema, path)
    else:
        yield from _scalar(value, schema, path)


def _object(value: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[str]:
    fields = schema.get("properties", {})
    yield from (f"{path}.{name}: is missing" for name in schema.get("required", ()) if name not in value)
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    for key, item in value.items():
        child = fields.get(key, schema.get("additionalProperties"))
        if child is None:
            yield f"{path}.{key}: is no field"
        else:
            yield from faults(item, child, f"{path}.{key}")


def _array(value: list[Any], schema: dict[str, Any], path: str) -> Iterator[str]:
    if len(value) > schema.get("maxItems", len(value)):
        yield f"{path}: {len(value)} items"
    keys = schema.get("x-kubernetes-list-map-keys")
    marks = [tuple(item[key] for key in keys) for item in value] if keys else value
    if schema.get("x-kubernetes-list-type") in ("map", "set") and any(marks.count(mark) > 1 for mark in marks):
        yield f"{path}: an item occurs twice"
    for index, item in enumerate(value):
        yield from faults(item, schema["items"], f"{path}[{index}]")


def _scalar(value: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    if isinstance(value, str) and not value.isascii() and value.encode(errors="replace").decode() != value:
        yield f"{path}: is no UTF-8"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if isinstance(value, str) and len(value) > schema.get("maxLength", len(value)):
        yield f"{path}: {len(value)} characters"
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{path}: {value!r} does not match"
    if schema.get("format") == "date-time" and timestamp(value) is None:
        yield f"{path}: {value!r} is no time"
    if isinstance(value, int) and not schema.get("minimum", -(2**63)) <= value <= schema.get("maximum", 2**63 - 1):
        yield f"{path}: {value} is out of bounds"
