"""What every model of the custom resource shares: how it reads, and small types that several parts use. Pure."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

Int = Annotated[int, Field(strict=True)]
Bool = Annotated[bool, Field(strict=True)]
Name = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
IntOrPercent = Annotated[int, Field(strict=True, ge=0)] | Annotated[str, Field(pattern=r"^(100|[1-9]?[0-9])%$")]
FreeMap = dict[str, Any]
StringMap = dict[str, Annotated[str, Field(max_length=4096)]]


class Part(BaseModel):
    """One object of the custom resource: frozen, camelCase on the wire, unknown keys ignored (an older operator reads a
    newer resource). Null, an empty string and an empty list mean the same as an absent field."""

    model_config = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True, extra="ignore", use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def _empty_is_absent(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        return {key: value for key, value in data.items() if value is not None and value not in ("", [])}


def rule(expression: str, message: str, field: str = "") -> dict[str, str]:
    """One CEL validation; `field` is the field at fault, relative to the model, "" for all of it."""
    where = {"fieldPath": f".{field}"} if field else {}
    return {"rule": expression, "message": message, **where}


def rules(*validations: dict[str, str]) -> dict[str, Any]:
    """`json_schema_extra` of a model with CEL validations."""
    return {"x-kubernetes-validations": list(validations)}


def set_list() -> dict[str, Any]:
    """`json_schema_extra` of a list whose items are unique."""
    return {"x-kubernetes-list-type": "set"}


def map_list(*keys: str) -> dict[str, Any]:
    """`json_schema_extra` of a list whose items are objects told apart by `keys`."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def atomic_list() -> dict[str, Any]:
    """`json_schema_extra` of a list that only makes sense as a whole."""
    return {"x-kubernetes-list-type": "atomic"}


class SecretKey(Part):
    """One key of a Secret in the namespace of the SpecDecodeDeployment."""

    name: Name
    """Name of the Secret."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
    """Key in the Secret's data."""
