"""Holds the Lease that makes one operator the writer, and tells at any moment whether it surely is."""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from specfleet.controller.protocol import LEASE, ApiError, Conflict, Exists, Kube, Missing, Object

DURATION = 15.0  # seconds after which another may take an unrenewed lease
RENEW = 5.0  # seconds between renewals
SURE = 10.0  # seconds after a renewal in which this process may write: well before another could take over

log = logging.getLogger(__name__)


class LeaderLease:
    """One Lease, one identity. Another's lease is taken only when it has not changed for its whole duration here.

    Times of other machines are never compared with ours: what counts is how long we have watched no change.
    """

    def __init__(
        self, namespace: str, name: str, identity: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._monotonic = monotonic
        self._renewed = float("-inf")
        self._seen: tuple[str, float] = ("", float("-inf"))  # resourceVersion of another's lease, and since when

    def held(self) -> bool:
        """True only while nobody else can have taken the lease."""
        return self._monotonic() - self._renewed < SURE

    async def acquire(self, kube: Kube) -> None:
        """Return once the lease is ours."""
        while not await self.attempt(kube):
            await asyncio.sleep(RENEW / 2)
        log.info("leader: %s", self._identity)

    async def keep(self, kube: Kube) -> None:
        """Renew for ever; return when the lease is lost."""
        while True:
            await asyncio.sleep(RENEW)
            await self.attempt(kube)
            if not self.held():
                log.error("the lease is lost: this operator stops")
                return

    async def attempt(self, kube: Kube) -> bool:
        """Take or renew the lease if that is possible now."""
        started = self._monotonic()
        try:
            taken = await self._take(kube)
        except ApiError as error:
            log.warning("lease %s/%s: %s", self._namespace, self._name, error)
            return False
        if taken:
            self._renewed = started
        return taken

    async def release(self, kube: Kube) -> None:
        """Give the lease up, so that the next operator need not wait."""
        if not self.held():
            return
        self._renewed = float("-inf")
        try:
            lease = await kube.get(LEASE, self._namespace, self._name)
            if lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"]["holderIdentity"] = ""
                await kube.replace(LEASE, self._namespace, lease)
        except ApiError as error:
            log.warning("the lease is not released: %s", error)

    async def _take(self, kube: Kube) -> bool:
        try:
            lease = await kube.get(LEASE, self._namespace, self._name)
        except Missing:
            return await self._write(kube.create, self._body({}, {}))
        if not self._free(lease):
            return False
        return await self._write(kube.replace, self._body(lease["metadata"], lease.get("spec") or {}))

    async def _write(self, verb: Callable[..., Any], body: Object) -> bool:
        try:
            await verb(LEASE, self._namespace, body)
        except (Conflict, Exists):
            return False
        return True

    def _free(self, lease: Object) -> bool:
        spec = lease.get("spec") or {}
        if spec.get("holderIdentity") in (self._identity, "", None):
            return True
        version, now = lease["metadata"]["resourceVersion"], self._monotonic()
        if version != self._seen[0]:
            self._seen = (version, now)
        return now - self._seen[1] > float(spec.get("leaseDurationSeconds") or DURATION)

    def _body(self, metadata: Object, spec: Object) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ours = spec.get("holderIdentity") == self._identity
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {**metadata, "name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": int(DURATION),
                "acquireTime": spec.get("acquireTime") if ours else now,
                "renewTime": now,
                "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (0 if ours else 1),
            },
        }
