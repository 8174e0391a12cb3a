"""kopf, as a watcher and nothing else: every event updates the cache and enqueues a key."""

import asyncio
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import kopf

from specfleet.api import names
from specfleet.controller.cache import Cache, Key
from specfleet.controller.protocol import UNLABELLED, WATCHED, Object, Resource

TOKEN_LIFE = timedelta(minutes=10)  # the kubelet renews a service account's token well before it ends
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def registry(cache: Cache, enqueue: Callable[[Key], None]) -> kopf.OperatorRegistry:
    """Handlers for each kind that is watched. kopf writes nothing: no finalizer, no annotation, no event."""
    found = kopf.OperatorRegistry()
    kopf.on.login(registry=found)(login)
    for resource in WATCHED:
        group, _, version = resource.api_version.rpartition("/")
        handler = _handler(resource, cache, enqueue)
        kopf.on.event(group, version, resource.plural, registry=found, id=f"watch-{resource.plural}")(handler)
    return found


def settings() -> kopf.OperatorSettings:
    """kopf without its own state, its own peering, and its own scan of the cluster."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    chosen.scanning.disabled = True
    chosen.networking.request_timeout = 30
    chosen.watching.server_timeout = 300
    chosen.watching.client_timeout = 330
    chosen.watching.chunk_size = 500
    chosen.process.ultimate_exiting_timeout = 30
    for resource in WATCHED:
        if resource in UNLABELLED:
            continue
        chosen.watching.label_selectors[resource.plural] = names.DEPLOYMENT
    return chosen


async def watch(cache: Cache, enqueue: Callable[[Key], None], namespaces: tuple[str, ...], stop: asyncio.Event) -> None:
    """Run kopf until `stop`."""
    await kopf.operator(
        registry=registry(cache, enqueue),
        settings=settings(),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
        stop_flag=stop,
    )


def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """The pod's service account by address, so that no cluster DNS is needed; outside a cluster the kubeconfig."""
    if not os.path.exists(f"{SERVICE_ACCOUNT}/token"):
        return kopf.login_with_kubeconfig(**kwargs)
    with open(f"{SERVICE_ACCOUNT}/token", encoding="utf-8") as file:
        token = file.read().strip()
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return kopf.ConnectionInfo(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        ca_path=f"{SERVICE_ACCOUNT}/ca.crt",
        token=token,
        expiration=datetime.now(UTC) + TOKEN_LIFE,
    )


def _handler(resource: Resource, cache: Cache, enqueue: Callable[[Key], None]) -> Callable[..., Any]:
    async def changed(event: Any, **_: Any) -> None:
        raw: Object = {**event["object"], "apiVersion": resource.api_version, "kind": resource.kind}
        meta = raw["metadata"]
        if event["type"] == "DELETED":
            keys = cache.drop(resource.kind, meta["namespace"], meta["name"], meta.get("uid", ""))
        else:
            keys = cache.put(raw)
        for key in keys:
            enqueue(key)

    return changed
