"""Whether a custom resource can be used, and what in it is not built yet; total over any JSON. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from specfleet.api import cross_field, engine_args
from specfleet.api.findings import findings
from specfleet.api.names import MAX_NAME
from specfleet.api.problem import Problem
from specfleet.api.spec import SpecDecodeDeploymentSpec

__all__ = ["Problem", "findings", "not_implemented", "parse"]

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def parse(raw: Mapping[str, Any]) -> SpecDecodeDeploymentSpec | tuple[Problem, ...]:
    """The spec of a whole custom resource, or everything that is wrong with it (at least one problem). Never raises."""
    named = tuple(_name(raw))
    if not isinstance(raw, Mapping) or not isinstance(raw.get("spec"), Mapping):
        return (*named, Problem("spec", None, "is required; set spec.model and spec.speculation"))
    try:
        spec = SpecDecodeDeploymentSpec.model_validate(raw["spec"])
    except ValidationError as error:
        found = [_translate(detail, raw["spec"]) for detail in error.errors(include_url=False, include_context=True)]
        return (*named, *{problem.field: problem for problem in reversed(found)}.values())
    found = [*named, *cross_field.problems(spec), *engine_args.problems(spec)]
    return tuple(found) if found else spec


def not_implemented(spec: SpecDecodeDeploymentSpec) -> tuple[str, ...]:
    """Paths of the fields that are set, accepted and without effect in this version."""
    return tuple(_not_implemented(spec))


def _not_implemented(spec: SpecDecodeDeploymentSpec) -> Iterator[str]:
    if spec.speculation.tuning.mode != "Off":
        yield "spec.speculation.tuning.mode"
    if spec.request_log.enabled:
        yield "spec.requestLog.enabled"


def _name(raw: Any) -> Iterator[Problem]:
    metadata = raw.get("metadata") if isinstance(raw, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str) or len(name) > MAX_NAME or not _NAME.fullmatch(name):
        todo = f"must be at most {MAX_NAME} lower-case letters, digits or dashes, beginning with a letter; rename it"
        yield Problem("metadata.name", name, todo)


# What to do by pydantic's type of error; {..} are the error's own numbers.
_TODO = {
    "missing": "is required; set it",
    "int_type": "must be a whole number; write it without quotes and fraction",
    "bool_type": "must be true or false; write it without quotes",
    "string_type": "must be a string; quote it",
    "string_unicode": "must be valid Unicode; rewrite it",
    "dict_type": "must be an object; write its fields below it",
    "model_type": "must be an object; write its fields below it",
    "tuple_type": "must be a list; begin each item with a dash",
    "literal_error": "must be {expected}; choose one",
    "greater_than_equal": "must be at least {ge}; raise it",
    "less_than_equal": "must be at most {le}; lower it",
    "string_too_short": "must not be empty; set it",
    "string_too_long": "must be at most {max_length} characters; shorten it",
    "too_long": "must hold at most {max_length} items; remove some",
    "string_pattern_mismatch": "must match {pattern}; correct it",
}


def _translate(detail: ErrorDetails, spec: Any) -> Problem:
    path, value = _locate(detail["loc"], spec)
    todo = _TODO.get(detail["type"])
    message = todo.format(**detail.get("ctx", {})) if todo else f"{detail['msg'].lower()}; correct it"
    return Problem("spec" + path, value, message)


def _locate(location: tuple[int | str, ...], value: Any) -> tuple[str, Any]:
    """Path and value of an error. pydantic adds the names of a union's members to a location; a scalar ends the way."""
    path = ""
    for key in location:
        if isinstance(value, Mapping) and isinstance(key, str):
            path, value = f"{path}.{key}", value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and key < len(value):
            path, value = f"{path}[{key}]", value[key]
        else:
            break
    return path, value
