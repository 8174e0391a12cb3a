"""Every limit of the schema, broken one by one: the API server and the operator both refuse it and name the field."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.controlplane import ControlPlane
from kube_http import KubeHttp
from specfleet.api import crd, names, validation

FULL = yaml.safe_load((Path(__file__).parents[2] / "docs" / "examples" / "full.yaml").read_text())
PATH = f"/apis/{names.GROUP}/{names.VERSION}/namespaces/default/{names.PLURAL}"
Schema = dict[str, Any]
Place = tuple[str | int, ...]
ABSENT = object()
WRONG_TYPE = {"integer": "x", "boolean": "x", "string": 7, "array": "x", "object": "x"}


@dataclass(frozen=True)
class Broken:
    """One limit and a value beyond it, at a place in the full example."""

    place: Place
    limit: str
    value: Any

    @property
    def field(self) -> str:
        return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.place).lstrip(".")

    def __str__(self) -> str:
        return f"{self.field}: {self.limit}"

    def resource(self) -> dict[str, Any]:
        """The full example with this one value; what it stands in is made where the example lacks it."""
        raw: dict[str, Any] = copy.deepcopy(FULL)
        inside: Any = raw
        for key, after in zip(self.place, self.place[1:], strict=False):
            empty: Any = [{}] if isinstance(after, int) else {}
            if isinstance(inside, dict):
                inside = inside.setdefault(key, empty)
            else:
                inside = inside[key]
        if self.value is ABSENT:
            inside.pop(self.place[-1], None)
        else:
            inside[self.place[-1]] = self.value
        return raw


def limits(schema: Schema, place: Place) -> Iterator[Broken]:
    yield from (Broken(place, limit, value) for limit, value in _beyond(schema, place))
    for name in schema.get("required", ()):
        yield Broken((*place, name), "required", ABSENT)
    for name, child in schema.get("properties", {}).items():
        yield from limits(child, (*place, name))
    if "items" in schema:
        yield from limits(schema["items"], (*place, 0))
    if "additionalProperties" in schema:
        yield from limits(schema["additionalProperties"], (*place, "key"))


def _beyond(schema: Schema, place: Place) -> Iterator[tuple[str, Any]]:
    yield "type", True if schema.get("x-kubernetes-int-or-string") else WRONG_TYPE[schema["type"]]
    if "minimum" in schema:
        yield "minimum", schema["minimum"] - 1
    if "maximum" in schema:
        yield "maximum", schema["maximum"] + 1
    if "enum" in schema:
        yield "enum", "nonsense"
    if "pattern" in schema:
        yield "pattern", "\t"
    if "maxLength" in schema and "enum" not in schema:
        yield "maxLength", "1" * (schema["maxLength"] + 1)
    if "maxItems" in schema:
        yield "maxItems", [_example((*place, 0), schema["items"])] * (schema["maxItems"] + 1)
    if "maxProperties" in schema:
        item = _example((*place, "key"), schema.get("additionalProperties", {}))
        yield "maxProperties", {f"key{index}": item for index in range(schema["maxProperties"] + 1)}


def _example(place: Place, schema: Schema) -> Any:
    """An item that is valid by itself: the full example's, else the plainest of its type."""
    value: Any = FULL
    try:
        for key in place:
            value = value[key]
    except (KeyError, IndexError, TypeError):
        return {"integer": 1, "string": "1", "object": {}}.get(schema.get("type", "string"))
    return value


LIMITS = [*limits(crd.schema()["properties"]["spec"], ("spec",))]


def test_the_limits_are_found() -> None:
    assert len(LIMITS) > 350
    assert len({str(broken) for broken in LIMITS}) == len(LIMITS)
    assert isinstance(validation.parse(FULL), validation.SpecDecodeDeploymentSpec)


@pytest.mark.parametrize("broken", LIMITS, ids=str)
def test_the_operator_refuses_what_is_beyond_a_limit(broken: Broken) -> None:
    problems = validation.parse(broken.resource())
    assert isinstance(problems, tuple)
    mine = [problem for problem in problems if problem.field == broken.field]
    assert mine, problems
    assert "; " in mine[0].message


@pytest.mark.apiserver
def test_the_api_server_refuses_what_is_beyond_a_limit(crd_plane: ControlPlane) -> None:
    taken = []
    with KubeHttp(crd_plane) as http:
        for broken in LIMITS:
            causes = http.refusal(PATH, broken.resource())
            if not any(cause["field"] == broken.field for cause in causes):
                taken.append((str(broken), [(cause["field"], cause["message"][:80]) for cause in causes]))
    assert taken == []
