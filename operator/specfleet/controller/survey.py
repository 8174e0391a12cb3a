"""Asks which nodes have accelerators free, only while a pod waits for one, and not more than once a minute."""

import logging
from collections.abc import Callable

from specfleet.controller.protocol import NODE, POD, ApiError, Kube
from specfleet.resources.devices import free_by_node, told

VALID = 60.0  # seconds

log = logging.getLogger(__name__)


class Survey:
    """Remembers what it was told for a minute. Where it may not read nodes it says nothing."""

    def __init__(self, kube: Kube, clock: Callable[[], float], allowed: bool) -> None:
        self._kube = kube
        self._clock = clock
        self._allowed = allowed
        self._known: dict[str, tuple[float, str]] = {}

    async def free(self, resource: str) -> str:
        """Which nodes have how many of the resource free, in words; empty if that is not known."""
        when, text = self._known.get(resource, (float("-inf"), ""))
        if not self._allowed or self._clock() - when < VALID:
            return text
        try:
            nodes, pods = await self._kube.everything(NODE), await self._kube.everything(POD)
            text = told(free_by_node(nodes, pods, resource), resource)
        except ApiError as error:
            log.warning("nodes cannot be read", extra={"error": str(error)})
            text = ""
        self._known[resource] = (self._clock(), text)
        return text
