"""From pydantic's JSON schema to the structural schema that a CustomResourceDefinition demands. Pure.

Rules: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

_COPIED = (
    "type", "format", "pattern", "enum", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
    "maxProperties", "minProperties", "required",
)  # fmt: skip
_DROPPED = ("title", "default", "$defs", "description", "properties", "items", "additionalProperties", "nullable")
_INT_OR_STRING = {"integer", "string"}


class NotStructural(ValueError):
    """A model holds something that a structural schema cannot say; the message begins with the field's path."""


def structural(model: type[BaseModel]) -> Schema:
    """OpenAPI v3 structural schema of `model`, without defaults; raises NotStructural with the path of the culprit."""
    document = model.model_json_schema(by_alias=True, mode="validation")
    return _Converter(document.get("$defs", {})).convert(document, "", ())


class _Converter:
    """Converts one document; `path` is where it is, `inside` the definitions being inlined."""

    def __init__(self, definitions: dict[str, Schema]) -> None:
        self._definitions = definitions

    def convert(self, schema: Schema, path: str, inside: tuple[str, ...]) -> Schema:
        if "$ref" in schema:
            return self._inline(schema, path, inside)
        for keyword in ("anyOf", "allOf", "oneOf"):
            if keyword in schema:
                return self._union(keyword, schema, path, inside)
        return self._plain(schema, path, inside)

    def _inline(self, schema: Schema, path: str, inside: tuple[str, ...]) -> Schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        if name in inside:
            raise NotStructural(f"{path or name}: recursion through {name}")
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        return self.convert({**self._definitions[name], **siblings}, path, (*inside, name))

    def _union(self, keyword: str, schema: Schema, path: str, inside: tuple[str, ...]) -> Schema:
        """Only two unions exist in Kubernetes: with null, which means optional, and integer-or-string."""
        members = [member for member in schema[keyword] if member.get("type") != "null"]
        rest = {key: value for key, value in schema.items() if key != keyword}
        if keyword != "oneOf" and len(members) == 1:
            return self.convert({**members[0], **rest}, path, inside)
        if keyword != "anyOf" or {member.get("type") for member in members} != _INT_OR_STRING or len(members) != 2:
            raise NotStructural(f"{path}: {keyword} of {len(members)} kinds; use one optional field per kind")
        # The API server checks `pattern` on the string and `minimum` on the number only.
        merged = {key: value for member in members for key, value in member.items() if key in _COPIED and key != "type"}
        return {**self._described(rest), **merged, "x-kubernetes-int-or-string": True}

    def _plain(self, schema: Schema, path: str, inside: tuple[str, ...]) -> Schema:
        self._refuse_unknown(schema, path)
        result = self._described(schema) | {key: schema[key] for key in _COPIED if key in schema}
        result |= {key: value for key, value in schema.items() if key.startswith("x-kubernetes-")}
        if "const" in schema:
            result["enum"] = [schema["const"]]
        for exclusive, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if exclusive in schema:
                result |= {limit: schema[exclusive], exclusive: True}
        result |= self._children(schema, path, inside)
        if "type" not in result and "x-kubernetes-preserve-unknown-fields" not in result:
            raise NotStructural(f"{path}: has no type")
        return result

    def _children(self, schema: Schema, path: str, inside: tuple[str, ...]) -> Schema:
        if schema.get("type") == "array":
            if "items" not in schema:
                raise NotStructural(f"{path}: a list without the type of its items")
            return {"items": self.convert(schema["items"], f"{path}[]", inside)}
        if "properties" in schema:
            children = schema["properties"].items()
            return {"properties": {key: self.convert(value, _join(path, key), inside) for key, value in children}}
        values = schema.get("additionalProperties")
        if isinstance(values, dict) and values:
            return {"additionalProperties": self.convert(values, f"{path}{{}}", inside)}
        return {"x-kubernetes-preserve-unknown-fields": True} if schema.get("type") == "object" else {}

    @staticmethod
    def _described(schema: Schema) -> Schema:
        text = schema.get("description")
        return {"description": " ".join(text.split())} if text else {}

    @staticmethod
    def _refuse_unknown(schema: Schema, path: str) -> None:
        known = {*_COPIED, *_DROPPED, "const", "exclusiveMinimum", "exclusiveMaximum"}
        unknown = [key for key in schema if key not in known and not key.startswith("x-kubernetes-")]
        if unknown:
            raise NotStructural(f"{path}: {', '.join(unknown)} is not structural")
        if schema.get("type") == "number":
            raise NotStructural(f"{path}: a floating-point number; use an integer with a unit, or a string")


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
