"""How many accelerators each node has free: what it can give less what its pods have asked for. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from specfleet.resources.owned import quantity

Raw = Mapping[str, Any]
NAMED = 4  # nodes that a message names
ENDED = ("Succeeded", "Failed")


def free_by_node(nodes: Iterable[Raw], pods: Iterable[Raw], resource: str) -> dict[str, tuple[int, int]]:
    """(free, all) of a resource by node, of the nodes that have any. A pod asks as long as it has not ended."""
    able = {
        node["metadata"]["name"]: _amount((node.get("status") or {}).get("allocatable"), resource) for node in nodes
    }
    asked: dict[str, int] = {}
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName")
        if node and (pod.get("status") or {}).get("phase") not in ENDED:
            asked[node] = asked.get(node, 0) + _asked(pod["spec"], resource)
    return {node: (max(0, count - asked.get(node, 0)), count) for node, count in sorted(able.items()) if count}


def told(free: Mapping[str, tuple[int, int]], resource: str) -> str:
    """In words, the nodes with the most free first."""
    if not free:
        return f"no node has any {resource}"
    ordered = sorted(free.items(), key=lambda item: (-item[1][0], item[0]))
    named = ", ".join(f"{node} {count} of {able}" for node, (count, able) in ordered[:NAMED])
    more = f" and {len(ordered) - NAMED} nodes more" if len(ordered) > NAMED else ""
    return f"{resource} free: {named}{more}"


def _asked(spec: Raw, resource: str) -> int:
    """Init containers run before the others, one after the other."""
    containers, init = ([_requested(item, resource) for item in spec.get(kind) or ()] for kind in _KINDS)
    return max(sum(containers), max(init, default=0))


_KINDS = ("containers", "initContainers")


def _requested(container: Raw, resource: str) -> int:
    amounts = container.get("resources") or {}
    return _amount(amounts.get("requests"), resource) or _amount(amounts.get("limits"), resource)


def _amount(amounts: Raw | None, resource: str) -> int:
    return int(quantity((amounts or {}).get(resource, 0)) or 0)
