"""Conditions of a SpecDecodeDeployment: which there are, how one is written, how new ones join old ones. Pure."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Literal, Self

from specfleet.api.reasons import Reason

Status = Literal["True", "False", "Unknown"]
_MAX_MESSAGE = 4096


class Type(StrEnum):
    """A type of condition, with what its True means. The order is the order in status."""

    means: str

    def __new__(cls, value: str, means: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.means = means
        return member

    READY = "Ready", "Requests are answered: the stable revision, or a canary in its place, has ready pods."
    RECONCILING = "Reconciling", "Something is under way: a first rollout, a canary, a drain or a change of replicas."
    STALLED = "Stalled", "Nothing moves until a person acts: an aborted canary, an invalid spec, a taken name."
    CONFIG_VALID = "ConfigValid", "The spec was accepted; when False, the last valid one stays in force."
    NOT_IMPLEMENTED = "NotImplemented", "The spec sets fields that this version accepts but does not act on yet."
    HAS_FINDINGS = "HasFindings", "Something in the spec or around its route may spoil a rollout: status.findings."
    TEMPLATE_OUTDATED = "TemplateOutdated", "A restart would change the pods: this operator renders them differently."


def condition(type: Type | str, status: Status, reason: Reason | str, message: str, generation: int) -> dict[str, Any]:
    """One metav1.Condition for `generation`, without lastTransitionTime, which `merge` adds."""
    return {
        "type": str(type),
        "status": status,
        "observedGeneration": generation,
        "reason": str(reason),
        "message": message if len(message) <= _MAX_MESSAGE else message[: _MAX_MESSAGE - 1] + "…",
    }


def merge(old: Iterable[Mapping[str, Any]], new: Iterable[Mapping[str, Any]], now: str) -> list[dict[str, Any]]:
    """The conditions to store: exactly those of `new`, in the order of `Type` and then by name.

    `now` is an RFC 3339 time; a condition keeps its lastTransitionTime while its status stays the same.
    """
    before = {item.get("type"): item for item in old}
    merged = [{**item, "lastTransitionTime": _since(before.get(item["type"]), item, now)} for item in new]
    order = {str(type): index for index, type in enumerate(Type)}
    return sorted(merged, key=lambda item: (order.get(item["type"], len(order)), item["type"]))


def _since(before: Mapping[str, Any] | None, after: Mapping[str, Any], now: str) -> str:
    if before is not None and before.get("status") == after["status"]:
        return str(before.get("lastTransitionTime") or now)
    return now


def find(conditions: Iterable[Mapping[str, Any]], type: Type | str) -> Mapping[str, Any] | None:
    """The condition of that type, None if there is none."""
    return next((item for item in conditions if item.get("type") == type), None)
