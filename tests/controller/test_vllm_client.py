"""Reading pods: what a hostile or broken one answers costs no more than the limits, and is never taken for a page."""

import asyncio
import base64
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from specfleet.controller import vllm
from specfleet.controller.protocol import Forbidden, Resource
from specfleet.controller.telemetry import Unreachable
from specfleet.controller.vllm import VllmClient
from specfleet.rollout.world import Pod, pod

ADDRESS = "127.0.3.1"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Secrets:
    """The part of Kubernetes that reads an API key."""

    def __init__(self, key: str | None) -> None:
        self.key = key

    async def get(self, _: Resource, __: str, ___: str) -> dict[str, Any]:
        if self.key is None:
            raise Forbidden(403, "secrets is forbidden")
        return {"data": {"key": base64.b64encode(self.key.encode()).decode()}}


@pytest.fixture
def target() -> Pod:
    return pod({"metadata": {"name": "qwen-1", "uid": "u"}, "status": {"podIP": ADDRESS}})


@pytest.fixture
async def serve(monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int) -> AsyncIterator[Callable[..., Awaitable[None]]]:
    monkeypatch.setattr(vllm.names, "PORT", unused_tcp_port)
    runners: list[web.AppRunner] = []

    async def start(metrics: Handler | None = None, completions: Handler | None = None) -> None:
        app = web.Application()
        if metrics:
            app.router.add_get("/metrics", metrics)
        if completions:
            app.router.add_post("/v1/completions", completions)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, ADDRESS, unused_tcp_port).start()
        runners.append(runner)

    yield start
    for runner in runners:
        await runner.cleanup()


async def scrape(target: Pod) -> bytes:
    async with VllmClient(Secrets("")) as client:  # type: ignore[arg-type]
        return await client.scrape(target)


async def test_a_page_is_read_whole(serve: Any, target: Pod) -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(body=b"vllm:num_requests_running 1\n" * 2000)

    await serve(page)
    assert len(await scrape(target)) == 28 * 2000


@pytest.mark.parametrize("packed", [False, True])
async def test_a_huge_page_is_refused_even_when_it_is_packed(serve: Any, target: Pod, packed: bool) -> None:
    async def page(_: web.Request) -> web.Response:
        body = b"x" * (vllm.MAX_PAGE + 1)
        headers = {"Content-Encoding": "gzip"} if packed else {}
        return web.Response(body=gzip.compress(body) if packed else body, headers=headers)

    await serve(page)
    with pytest.raises(Unreachable, match="more than 4 MiB"):
        await scrape(target)


async def test_an_endless_page_is_refused(serve: Any, target: Pod) -> None:
    async def page(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65536)

    await serve(page)
    with pytest.raises(Unreachable, match="more than 4 MiB"):
        await scrape(target)


async def test_a_slow_page_is_given_up(serve: Any, target: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "SCRAPE_TIMEOUT", 0.3)

    async def page(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write(b"x")
            await asyncio.sleep(0.05)
        return response

    await serve(page)
    with pytest.raises(Unreachable, match="took longer"):
        await scrape(target)


async def test_a_redirect_is_not_followed(serve: Any, target: Pod) -> None:
    async def page(_: web.Request) -> web.Response:
        raise web.HTTPFound("http://169.254.169.254/latest/meta-data")

    await serve(page)
    with pytest.raises(Unreachable, match="answered 302"):
        await scrape(target)


async def test_a_refused_connection_is_unreachable(target: Pod) -> None:
    with pytest.raises(Unreachable, match="ClientConnectorError"):
        await scrape(target)


async def test_a_pod_without_an_address_is_unreachable() -> None:
    with pytest.raises(Unreachable):
        await scrape(pod({"metadata": {"name": "qwen-1"}, "status": {}}))


async def ask(target: Pod, secrets: Secrets, payload: dict[str, Any] | None = None) -> vllm.Answer:
    async with VllmClient(secrets) as client:  # type: ignore[arg-type]
        return await client.ask("ns", target, payload or {}, "/v1/completions", {"prompt": "2+2="})


async def test_the_api_key_goes_with_the_question(serve: Any, target: Pod) -> None:
    async def completions(request: web.Request) -> web.Response:
        return web.json_response({"key": request.headers.get("Authorization")})

    await serve(completions=completions)
    answer = await ask(target, Secrets("s3cret\n"), {"apiKeySecret": {"name": "vllm-key", "key": "key"}})
    assert answer.body == {"key": "Bearer s3cret"}


async def test_a_key_that_cannot_be_read_is_nobodys_fault(target: Pod) -> None:
    answer = await ask(target, Secrets(None), {"apiKeySecret": {"name": "vllm-key", "key": "key"}})
    assert (answer.body, answer.wrong) == (None, False)
    assert "the API key cannot be read" in answer.why


@pytest.mark.parametrize(("status", "wrong"), [(500, True), (404, True), (401, False), (403, False)])
async def test_an_error_is_the_servers_fault_but_a_refused_key_is_not(
    serve: Any, target: Pod, status: int, wrong: bool
) -> None:
    async def completions(_: web.Request) -> web.Response:
        return web.Response(status=status)

    await serve(completions=completions)
    assert (await ask(target, Secrets(""))).wrong is wrong


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"error": {"message": "you must provide\na chat template"}}, "answered 400: you must provide a chat template"),
        ({"error": {"message": "x" * 999}}, "answered 400: " + "x" * 200),
        ({"error": "no"}, "answered 400"),
        (["no"], "answered 400"),
    ],
)
async def test_what_a_server_says_in_its_error_is_kept_on_one_line(
    serve: Any, target: Pod, said: Any, why: str
) -> None:
    async def completions(_: web.Request) -> web.Response:
        return web.json_response(said, status=400)

    await serve(completions=completions)
    answer = await ask(target, Secrets(""))
    assert (answer.why, answer.status) == (why, 400)


async def test_a_server_that_never_answers_is_at_fault(
    serve: Any, target: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm, "ASK_TIMEOUT", 0.2)

    async def completions(_: web.Request) -> web.Response:
        await asyncio.sleep(5)
        return web.Response()

    await serve(completions=completions)
    answer = await ask(target, Secrets(""))
    assert answer.wrong
    assert "no answer" in answer.why


async def test_a_pod_that_is_gone_is_nobodys_fault(target: Pod) -> None:
    answer = await ask(target, Secrets(""))
    assert (answer.body, answer.wrong) == (None, False)


@pytest.mark.parametrize("body", [b"<html>", b"[1, 2]", b"\xff\xfe"])
async def test_an_answer_that_is_no_object_never_passes(serve: Any, target: Pod, body: bytes) -> None:
    async def completions(_: web.Request) -> web.Response:
        return web.Response(body=body)

    await serve(completions=completions)
    answer = await ask(target, Secrets(""))
    assert answer.wrong or answer.body == {}


async def test_what_a_server_says_can_be_stored_and_shown(serve: Any, target: Pod) -> None:
    """Half a surrogate pair is no UTF-8: what was stored with it would not come back, nor its checksum hold."""

    async def completions(_: web.Request) -> web.Response:
        said = '{"error": {"message": "\\ud800 no \\u001b[31m chat\\u0000 template\\u2028' + "x" * 5000 + '"}}'
        return web.Response(status=400, text=said, content_type="application/json")

    await serve(completions=completions)
    why = (await ask(target, Secrets(""))).why
    assert why.startswith("answered 400: no [31m chat template xxx")
    assert len(why) < 300


async def test_a_server_that_speaks_no_http_is_quoted_on_one_line(
    target: Pod, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nx\x1b: " + b"y" * 9000 + b"\r\n\r\n")
        writer.close()

    monkeypatch.setattr(vllm.names, "PORT", unused_tcp_port)
    async with await asyncio.start_server(talk, ADDRESS, unused_tcp_port):
        answer = await ask(target, Secrets(""))
    assert answer.body is None
    assert answer.why.isprintable()
    assert len(answer.why) <= vllm.MAX_ERROR


async def test_a_key_that_no_header_can_carry_is_nobodys_fault(target: Pod) -> None:
    answer = await ask(target, Secrets("a\nb"), {"apiKeySecret": {"name": "vllm-key", "key": "key"}})
    assert (answer.body, answer.wrong) == (None, False)
