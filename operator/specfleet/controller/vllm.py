"""Talks to vLLM pods: reads metrics pages and asks prompts, within limits that a hostile pod cannot stretch."""

import base64
import json
from types import TracebackType
from typing import Any, Self

import aiohttp
from yarl import URL

from specfleet.api import names
from specfleet.controller.probes import Answer
from specfleet.controller.protocol import SECRET, ApiError, Kube
from specfleet.controller.telemetry import Unreachable
from specfleet.rollout.world import Pod, Raw
from specfleet.telemetry.page import MAX_PAGE

MAX_ANSWER = 1 << 20
SCRAPE_TIMEOUT = 5.0  # seconds, for a whole page
MAX_ERROR = 200  # characters
ASK_TIMEOUT = 60.0  # seconds: a pod that has not generated 32 tokens by then is stuck


class VllmClient:
    """HTTP to pods by address. Follows no redirect, keeps no cookie, reads no more than it must."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session:
            await self._session.close()

    async def scrape(self, pod: Pod) -> bytes:
        """The metrics page of a pod; raises Unreachable."""
        timeout = aiohttp.ClientTimeout(total=SCRAPE_TIMEOUT)
        try:
            async with self._http.get(_url(pod, "/metrics"), timeout=timeout, allow_redirects=False) as response:
                if response.status != 200:
                    raise Unreachable(f"/metrics answered {response.status}")
                return await _bounded(response, MAX_PAGE)
        except TimeoutError as error:
            raise Unreachable(f"/metrics took longer than {SCRAPE_TIMEOUT:.0f} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unreachable(f"/metrics: {type(error).__name__}") from error

    async def ask(self, namespace: str, pod: Pod, payload: Raw, path: str, body: dict[str, Any]) -> Answer:
        """One answer of the OpenAI API. A time-out or an error is the server's fault; no connection, no key is not."""
        try:
            headers = await self._headers(namespace, payload)
        except (ApiError, ValueError) as error:
            return Answer(why=f"the API key cannot be read: {error}")
        timeout = aiohttp.ClientTimeout(total=ASK_TIMEOUT)
        try:
            async with self._http.post(
                _url(pod, path), json=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                return await _answer(response)
        except TimeoutError:
            return Answer(why=f"no answer in {ASK_TIMEOUT:.0f} s", wrong=True)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Answer(why=_line(f"{type(error).__name__}: {error}"))

    @property
    def _http(self) -> aiohttp.ClientSession:
        assert self._session is not None, "used outside `async with`"
        return self._session

    async def _headers(self, namespace: str, payload: Raw) -> dict[str, str]:
        """The bearer token, if the revision has an API key."""
        reference = payload.get("apiKeySecret")
        if not reference:
            return {}
        secret = await self._kube.get(SECRET, namespace, reference["name"])
        value = (secret.get("data") or {}).get(reference["key"], "")
        return {"Authorization": f"Bearer {base64.b64decode(value).decode(errors='replace').strip()}"}


def _url(pod: Pod, path: str) -> URL:
    return URL.build(scheme="http", host=pod.ip, port=names.PORT, path=path)


async def _bounded(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The body, refused beyond `limit` bytes as decompressed."""
    chunks, size = [], 0
    async for chunk in response.content.iter_chunked(1 << 16):
        size += len(chunk)
        if size > limit:
            raise Unreachable(f"more than {limit >> 20} MiB")
        chunks.append(chunk)
    return b"".join(chunks)


async def _answer(response: aiohttp.ClientResponse) -> Answer:
    status = response.status
    try:
        text = await _bounded(response, MAX_ANSWER)
    except Unreachable as error:
        return Answer(why=str(error), wrong=True, status=status)
    if status in (401, 403):
        return Answer(why=f"answered {status}: the API key is not accepted", status=status)
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if status != 200:
        said = _error(body)
        return Answer(why=f"answered {status}" + (f": {said}" if said else ""), wrong=True, status=status)
    if body is None:
        return Answer(why="not JSON", wrong=True, status=status)
    return Answer(body=body if isinstance(body, dict) else {}, status=status)


def _error(body: Any) -> str:
    """What vLLM says in its error, on one line."""
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return _line(message) if isinstance(message, str) else ""


def _line(text: str) -> str:
    """What a pod said, as it may be stored and shown: one line, without what steers a terminal or has no UTF-8."""
    kept = "".join(character if character.isprintable() else " " for character in text[: 4 * MAX_ERROR])
    return " ".join(kept.split())[:MAX_ERROR]
