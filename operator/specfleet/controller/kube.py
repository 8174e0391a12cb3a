"""Kubernetes over the official client's asyncio half, as plain dicts: the only module that knows that client."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException

from specfleet.api import names
from specfleet.controller.protocol import (
    LEASE,
    RESOURCES,
    SDD,
    UNLABELLED,
    ApiError,
    Conflict,
    Exists,
    Forbidden,
    Missing,
    Object,
    Resource,
)
from specfleet.plan import Verb, Write

TIMEOUT = aiohttp.ClientTimeout(total=30)
LEASE_TIMEOUT = aiohttp.ClientTimeout(total=3)  # a call that hangs leaves time for another before the Lease runs out
MAX_WAIT = 60.0  # seconds that a Retry-After may ask for
PAGE = 500  # objects per answer to a LIST
MAX_MESSAGE = 300  # characters kept of an error: some repeat the whole object
APPLY = "application/apply-patch+yaml"  # JSON is YAML
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


class KubeClient:
    """The Kube protocol against a real API server. `may_write` is asked before every write: the fence of the Lease."""

    def __init__(self, namespaces: tuple[str, ...], may_write: Callable[[], bool]) -> None:
        self._namespaces = namespaces
        self._may_write = may_write
        self._client: Any = None

    async def __aenter__(self) -> Self:
        configuration = client.Configuration()
        if SERVICE_ACCOUNT.exists():
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            path = os.environ.get("KUBECONFIG")
            await config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=path, client_configuration=configuration
            )
        self._client = client.ApiClient(configuration)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    async def list(self, resource: Resource) -> list[Object]:
        """Every object of a kind in the watched namespaces."""
        query = {} if resource in UNLABELLED else {"labelSelector": names.DEPLOYMENT}
        found: list[Object] = []
        for namespace in self._namespaces or ("",):
            found += await self._pages(_path(resource, namespace), resource, query)
        return found

    async def everything(self, resource: Resource) -> Sequence[Object]:
        """Every object of a kind in the cluster."""
        return await self._pages(_path(resource, ""), resource, {})

    async def _pages(self, path: str, resource: Resource, query: Mapping[str, str]) -> Sequence[Object]:
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        query = {**query, "limit": str(PAGE)}
        found = []
        while True:
            answer = await self._call("GET", path, query=query)
            found += [{**kind, **item} for item in answer.get("items") or ()]
            following = (answer.get("metadata") or {}).get("continue")
            if not following:
                return found
            query["continue"] = following

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """One object, read now."""
        return await self._call("GET", _path(resource, namespace, name))

    async def write(self, namespace: str, write: Write) -> Object:
        """One planned write, with its preconditions."""
        self._fence()
        resource = RESOURCES[write.kind]
        if write.verb is Verb.CREATE:
            # As YAML, which the API server itself turns into JSON: a ControllerRevision's data is compared by its bytes
            # at every later patch, so they must be those that the server would write.
            body, strict = json.dumps(write.body), {"fieldValidation": "Strict", **_manager()}
            path = _path(resource, namespace)
            return await self._call("POST", path, body, content="application/yaml", query=strict, create=True)
        path = _path(resource, namespace, write.name)
        if write.verb is Verb.DELETE:
            uid = {"preconditions": {"uid": write.body["metadata"]["uid"]}, "propagationPolicy": "Background"}
            return await self._call("DELETE", path, uid)
        if write.verb is Verb.JSON_PATCH:
            return await self._call("PATCH", path, write.body["patch"], content=JSON_PATCH, query=_manager())
        if write.verb is Verb.PATCH:
            return await self._call("PATCH", path, write.body, content=MERGE, query=_manager())
        return await self._call("PATCH", path, write.body, content=APPLY, query=_manager(force=True))

    async def patch_status(self, namespace: str, name: str, status: Object, uid: str) -> Object:
        """The whole status, applied through the subresource; what is no longer in it goes."""
        self._fence()
        meta = {"name": name, "namespace": namespace, "uid": uid}
        body = {"apiVersion": SDD.api_version, "kind": SDD.kind, "metadata": meta, "status": status}
        path = f"{_path(SDD, namespace, name)}/status"
        return await self._call("PATCH", path, body, content=APPLY, query=_manager(force=True))

    async def create(self, resource: Resource, namespace: str, body: Object) -> Object:
        """One object that no plan writes; the Lease itself is what the fence asks."""
        if resource is not LEASE:
            self._fence()
        return await self._call("POST", _path(resource, namespace), body, create=True)

    async def replace(self, resource: Resource, namespace: str, body: Object) -> Object:
        """PUT with the resourceVersion in the body."""
        return await self._call("PUT", _path(resource, namespace, body["metadata"]["name"]), body)

    def _fence(self) -> None:
        if not self._may_write():
            raise ApiError(0, "not the leader: nothing is written")

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | Sequence[Any] | str | None = None,
        content: str = "application/json",
        query: Mapping[str, str] | None = None,
        create: bool = False,
    ) -> Object:
        headers = {"Content-Type": content, "Accept": "application/json"}
        request = await self._client.param_serialize(
            method=method,
            resource_path=path,
            query_params=list((query or {}).items()),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            patience = LEASE_TIMEOUT if f"/{LEASE.plural}" in path else TIMEOUT
            response = await self._client.call_api(*request, _request_timeout=patience)
            data = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError, ApiException) as error:
            raise ApiError(0, f"{method} {path}: {type(error).__name__} {error}") from error
        answer: Object = _json(data)
        if not 200 <= response.status <= 299:
            if content == JSON_PATCH and _test_failed(response.status, answer):
                raise Conflict(409, "the object is not the one that was read")
            raise _error(response.status, answer, response.headers.get("Retry-After"), create)
        return answer


def _path(resource: Resource, namespace: str, name: str = "") -> str:
    parts = [resource.root]
    if namespace:
        parts += ["namespaces", namespace]
    return "/".join([*parts, resource.plural, *([name] if name else [])])


def _manager(force: bool = False) -> dict[str, str]:
    return {"fieldManager": names.FIELD_MANAGER, **({"force": "true"} if force else {})}


def _json(data: bytes) -> Object:
    try:
        answer = json.loads(data)
    except ValueError:
        return {"message": data[:200].decode(errors="replace")}
    return answer if isinstance(answer, dict) else {"message": str(answer)[:200]}


def _test_failed(status: int, answer: Object) -> bool:
    """A 422 without causes is all that the API server says of a JSON patch of which a test failed."""
    return status == 422 and not (answer.get("details") or {}).get("causes")


def _error(status: int, answer: Object, retry_after: str | None, create: bool) -> ApiError:
    message = str(answer.get("message", "no message"))[:MAX_MESSAGE]
    wait = min(MAX_WAIT, float(retry_after)) if retry_after and retry_after.isdecimal() else 0.0
    if status == 409:
        exists = create and answer.get("reason") == "AlreadyExists"
        return Exists(status, message) if exists else Conflict(status, message)
    return {403: Forbidden, 404: Missing}.get(status, ApiError)(status, message, wait)
