"""The API server as administrator over one kept-alive connection, for polls that are too many for kubectl."""

import http.client
import json
import ssl
from typing import Any, Self
from urllib.parse import urlsplit

from harness.controlplane import ControlPlane

Object = dict[str, Any]
MERGE = "application/merge-patch+json"


class KubeHttp:
    """JSON calls. One thread each; close it, or leave the context."""

    def __init__(self, plane: ControlPlane) -> None:
        keys = plane.kubeconfig.parent
        context = ssl.create_default_context(cafile=str(keys / "ca.crt"))
        context.load_cert_chain(keys / "admin.crt", keys / "admin.key")
        address = urlsplit(plane.url)
        self._connection = http.client.HTTPSConnection(
            address.hostname or "", address.port, timeout=30, context=context
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def call(self, method: str, path: str, body: Object | None = None, content: str = "application/json") -> Object:
        """The answer's object; an AssertionError for any status but 2xx, 404 and 409, for which it is empty."""
        status, found = self._send(method, path, body, content)
        if status in (404, 409):
            return {}
        assert 200 <= status <= 299, f"{method} {path}: {status} {json.dumps(found)[:500]}"
        return found

    def refusal(self, path: str, body: Object) -> list[Object]:
        """The causes (reason, message, field) for which a POST of `body` is invalid; empty if it would be taken."""
        status, found = self._send("POST", f"{path}?dryRun=All", body, "application/json")
        assert status in (201, 422), f"POST {path}: {status} {json.dumps(found)[:500]}"
        causes: list[Object] = found["details"]["causes"] if status == 422 else []
        return causes

    def _send(self, method: str, path: str, body: Object | None, content: str) -> tuple[int, Object]:
        data = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, data, {"Content-Type": content})
            answer = self._connection.getresponse()
            text = answer.read()
        except (http.client.HTTPException, OSError):
            self._connection.close()  # it opens a new one by itself
            raise
        try:
            found: Object = json.loads(text)
        except ValueError:
            found = {"message": text[:500].decode(errors="replace")}
        return answer.status, found

    def get(self, path: str) -> Object:
        """The object at `path`, empty if there is none."""
        return self.call("GET", path)

    def items(self, path: str) -> list[Object]:
        """The objects of a list."""
        found: list[Object] = self.get(path).get("items") or []
        return found
