"""Writes Kubernetes events on SDDs; kopf's own recorder works only inside its handlers."""

import logging
import uuid
from collections.abc import Callable

from specfleet.api import names
from specfleet.controller.protocol import EVENT, SDD, ApiError, Kube
from specfleet.plan import Event
from specfleet.rollout.world import Raw, rfc3339

log = logging.getLogger(__name__)
MAX_MESSAGE = 1000  # the API's limit is 1024


class Recorder:
    """An event that cannot be written is logged and lost: events are for people, never for decisions."""

    def __init__(self, kube: Kube, instance: str, clock: Callable[[], float]) -> None:
        self._kube = kube
        self._instance = instance
        self._clock = clock

    async def record(self, sdd: Raw, event: Event) -> None:
        """One event on the SDD."""
        meta, now = sdd["metadata"], rfc3339(self._clock())
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name']}.{uuid.uuid4().hex[:16]}", "namespace": meta["namespace"]},
            "involvedObject": {
                "apiVersion": names.API_VERSION,
                "kind": SDD.kind,
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
            },
            "reason": event.reason,
            "message": event.message[:MAX_MESSAGE],
            "type": "Warning" if event.warning else "Normal",
            "source": {"component": "specfleet"},
            "reportingComponent": "specfleet.dev/operator",
            "reportingInstance": self._instance,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._kube.create(EVENT, meta["namespace"], body)
        except ApiError as error:
            log.warning("event %s on %s/%s is lost: %s", event.reason, meta["namespace"], meta["name"], error)
