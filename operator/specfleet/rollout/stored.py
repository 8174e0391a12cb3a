"""Reads small dataclasses back from JSON, each field by its type: what is stored may be another version's. Pure."""

import json
from collections.abc import Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin

T = TypeVar("T")
MOST = 2e11  # as seconds the year 8307, which can still be written as a date; far beyond any margin or count


def parsed(text: str) -> Any:
    """What the JSON in `text` holds. ValueError (or RecursionError) where it is none, or where a text in it could not
    be stored again: JSON can write half a surrogate pair, which has no UTF-8."""
    found = json.loads(text)
    if "\\u" in text:
        json.dumps(found, ensure_ascii=False).encode()
    return found


def read(kind: type[T], raw: Any) -> T:
    """A `kind` of a JSON object. Unknown keys are passed over, absent fields take their defaults; ValueError or
    TypeError where a value is not of its field's type, a number not from 0 to MOST, or a field without default is
    absent."""
    if not isinstance(raw, Mapping):
        raise ValueError("not an object")
    known = fields(kind)  # type: ignore[arg-type]
    return kind(**{item.name: _value(item.type, raw[item.name]) for item in known if item.name in raw})


def count(value: Any) -> int:
    """A whole number from 0 to MOST; ValueError for anything else."""
    return int(_value(int, value))


def _value(kind: Any, value: Any) -> Any:
    options = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if value is None and NoneType in options:
        return None
    (plain,) = (option for option in options if option is not NoneType)
    if get_origin(plain) is tuple:
        if not isinstance(value, list):
            raise ValueError("not an array")
        return tuple(_value(part, item) for part, item in zip(get_args(plain), value, strict=True))
    if not isinstance(value, int | float if plain is float else plain) or isinstance(value, bool) is not (
        plain is bool
    ):
        raise ValueError(f"not a {plain.__name__}")
    if plain in (int, float) and not 0 <= value <= MOST:  # NaN fails too
        raise ValueError("not a number that is stored")
    return value
