"""From pydantic to a structural schema: what is converted, and what is refused with its path."""

from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from specfleet.api.structural import NotStructural, structural


def field(annotation: Any, default: Any = ...) -> dict[str, Any]:
    """Schema of the field `value` of a model that has only it."""
    model = type("Model", (BaseModel,), {"__annotations__": {"value": annotation}, "value": default})
    properties: dict[str, dict[str, Any]] = structural(model)["properties"]
    return properties["value"]


class Child(BaseModel):
    """A child."""

    name: str


class Node(BaseModel):
    children: "list[Node]" = []


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


def test_optional_means_absent_not_null() -> None:
    assert field(int | None, None) == {"type": "integer"}


def test_a_reference_is_inlined_with_its_docstring_unless_the_field_has_its_own() -> None:
    child = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    assert field(Child) == {**child, "description": "A child."}
    assert field(Annotated[Child, Field(description="Mine.")]) == {**child, "description": "Mine."}


def test_no_default_and_no_title_is_left() -> None:
    assert field(int, 5) == {"type": "integer"}
    assert "title" not in structural(Child)


def test_integer_or_string_keeps_the_limits_of_both() -> None:
    kind = Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern="^[0-9]+%$")]
    assert field(kind) == {"x-kubernetes-int-or-string": True, "minimum": 0, "pattern": "^[0-9]+%$"}


def test_a_constant_becomes_an_enumeration_of_one() -> None:
    assert field(Literal["x"])["enum"] == ["x"]


def test_an_exclusive_limit_becomes_a_limit_and_a_flag() -> None:
    assert field(Annotated[int, Field(gt=0)]) == {"type": "integer", "minimum": 0, "exclusiveMinimum": True}


def test_a_free_map_preserves_what_it_does_not_know() -> None:
    assert field(dict[str, Any]) == {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    assert field(dict[str, int]) == {"type": "object", "additionalProperties": {"type": "integer"}}


def test_forbidden_extras_do_not_stand_beside_properties() -> None:
    class Strict(BaseModel, extra="forbid"):
        name: str

    assert "additionalProperties" not in structural(Strict)


def test_extensions_for_kubernetes_are_kept() -> None:
    kind = Annotated[list[str], Field(json_schema_extra={"x-kubernetes-list-type": "set"})]
    assert field(kind) == {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}


def test_descriptions_are_one_line() -> None:
    assert field(Annotated[int, Field(description="a\n    b")])["description"] == "a b"


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (float, "value: a floating-point number"),
        (list[float], r"value\[\]: a floating-point number"),
        (dict[str, float], r"value\{\}: a floating-point number"),
        (int | bool, "value: anyOf of 2 kinds"),
        (str | list[str], "value: anyOf of 2 kinds"),
        (Child | str, "value: anyOf of 2 kinds"),
        (Annotated[Cat | Dog, Field(discriminator="kind")], "value: oneOf of 2 kinds"),
        (set[str], "value: uniqueItems is not structural"),
        (tuple[int, str], "value: prefixItems is not structural"),
        (dict[Annotated[str, Field(pattern="^a")], int], "value: patternProperties is not structural"),
        (Annotated[int, Field(multiple_of=2)], "value: multipleOf is not structural"),
        (Decimal, "value: anyOf of 2 kinds"),
        (Any, "value: has no type"),
        (list[Any], r"value\[\]: has no type"),
        (Node, r"value\.children\[\]: recursion through Node"),
    ],
    ids=str,
)
def test_what_no_structural_schema_can_say_is_refused_with_its_path(annotation: Any, message: str) -> None:
    with pytest.raises(NotStructural, match=message):
        field(annotation)
