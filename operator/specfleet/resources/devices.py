"""How many accelerators each node has free: what it can give less what its pods have asked for. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from specfleet.resources.owned import quantity

Raw = Mapping[str, Any]
NAMED = 4  # nodes that a message names
ENDED = ("Succeeded", "Failed")
KINDS = ("containers", "initContainers")


@dataclass(frozen=True, slots=True)
class Devices:
    """What a node can give of a resource, and what its pods have asked for: more than that, once its plugin is gone."""

    able: int
    asked: int

    @property
    def free(self) -> int:
        """How many a new pod could get there."""
        return max(0, self.able - self.asked)

    @property
    def lost(self) -> bool:
        """Pods hold some that the node no longer has to give: whoever leaves it makes no room there."""
        return self.asked > self.able


def devices_by_node(nodes: Iterable[Raw], pods: Iterable[Raw], resource: str) -> dict[str, Devices]:
    """The nodes that have any of a resource, or had it when their pods came. A pod asks as long as it has not ended."""
    able = {
        node["metadata"]["name"]: _amount((node.get("status") or {}).get("allocatable"), resource) for node in nodes
    }
    asked: dict[str, int] = {}
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName")
        if node and (pod.get("status") or {}).get("phase") not in ENDED:
            asked[node] = asked.get(node, 0) + _asked(pod["spec"], resource)
    found = {node: Devices(count, asked.get(node, 0)) for node, count in sorted(able.items())}
    return {node: devices for node, devices in found.items() if devices.able or devices.asked}


def told(devices: Mapping[str, Devices], resource: str) -> str:
    """In words: the nodes with the most free first, after those that have lost what their pods hold."""
    gone = ((name, item) for name, item in devices.items() if item.lost)
    lost = [f"node {name} has lost its {resource}: {item.asked} in use, {item.able} allocatable" for name, item in gone]
    able = sorted(((name, item) for name, item in devices.items() if item.able), key=lambda one: -one[1].free)
    if not able:
        return "; ".join((*lost[:NAMED], f"no node has any {resource}"))
    named = ", ".join(f"{name} {item.free} of {item.able}" for name, item in able[:NAMED])
    more = f" and {len(able) - NAMED} nodes more" if len(able) > NAMED else ""
    return "; ".join((*lost[:NAMED], f"{resource} free: {named}{more}"))


def _asked(spec: Raw, resource: str) -> int:
    """Init containers run before the others, one after the other."""
    containers, init = ([_requested(item, resource) for item in spec.get(kind) or ()] for kind in KINDS)
    return max(sum(containers), max(init, default=0))


def _requested(container: Raw, resource: str) -> int:
    amounts = container.get("resources") or {}
    return _amount(amounts.get("requests"), resource) or _amount(amounts.get("limits"), resource)


def _amount(amounts: Raw | None, resource: str) -> int:
    return int(quantity((amounts or {}).get(resource, 0)) or 0)
