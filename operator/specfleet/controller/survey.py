"""Asks what the nodes have of an accelerator, only when a plan depends on it, and seldom more than once a minute."""

import logging
from collections.abc import Callable, Mapping

from specfleet.controller.protocol import NODE, POD, ApiError, Kube
from specfleet.resources.devices import Devices, devices_by_node

VALID = 60.0  # seconds
SOON = 15.0  # where a node has lost what its pods hold: whoever waits for it is to go on soon after it is back

log = logging.getLogger(__name__)


class Survey:
    """Remembers for a while what it was told. Where it may not read nodes it says nothing."""

    def __init__(self, kube: Kube, clock: Callable[[], float], allowed: bool) -> None:
        self._kube = kube
        self._clock = clock
        self._allowed = allowed
        self._known: dict[str, tuple[float, Mapping[str, Devices] | None]] = {}

    async def devices(self, resource: str) -> Mapping[str, Devices] | None:
        """What each node has of a resource; None where that is not known."""
        when, known = self._known.get(resource, (float("-inf"), None))
        lost = known is not None and any(item.lost for item in known.values())
        if not self._allowed or 0 <= self._clock() - when < (SOON if lost else VALID):
            return known
        try:
            nodes, pods = await self._kube.everything(NODE), await self._kube.everything(POD)
            known = devices_by_node(nodes, pods, resource)
        except ApiError as error:
            log.warning("nodes cannot be read", extra={"error": str(error)})
            known = None
        self._known[resource] = (self._clock(), known)
        return known
