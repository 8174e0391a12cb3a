"""The load generator counts answers by pod and names every kind of failure."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from harness.loadgen import LoadGenerator
from harness.loadreport import Report, Second, quantiles
from simserver import SimServer, free_port

E2E = Path(__file__).parents[2] / "e2e"


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not condition():
            await asyncio.sleep(0.01)


async def serve(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> tuple[web.AppRunner, str]:
    app = web.Application()
    app.router.add_post("/v1/completions", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return runner, f"http://127.0.0.1:{port}"


async def test_answers_are_counted_by_pod_second_and_workload() -> None:
    with SimServer() as server:
        generator = LoadGenerator(server.url, 40, {"chat": 1, "code": 1}, max_tokens=10)
        await generator.start()
        await until(lambda: generator.report.answered >= 20)
        report = await generator.stop()
    assert report.failures == {}
    assert report.sent == report.answered == report.pods["pod-a"] == sum(report.workloads.values())
    assert report.tokens == 10 * report.answered
    assert sum(second.pods.get("pod-a", 0) for second in report.timeline) == report.answered
    assert 0 < len(report.ttft) < len(report.e2e)
    assert json.loads(json.dumps(report.to_json()))["e2e"]["p50"] > 0


async def test_a_server_that_dies_is_seen_as_cut_reset_and_refused() -> None:
    with SimServer(VLLM_SIM_SPEED="0.2") as server:
        generator = LoadGenerator(server.url, 60, max_tokens=400)
        await generator.start()
        await until(lambda: generator.report.sent >= 20)
        await asyncio.sleep(0.3)  # streams have begun
        server.process.kill()
        await until(lambda: generator.report.failures.get("refused", 0) >= 5)
        report = await generator.stop()
    assert report.answered == 0
    assert {"cut", "reset", "refused"} <= set(report.failures)
    assert report.sent == report.failed
    assert all(report.failures[kind] > 3 for kind in ("cut", "reset"))


async def test_statuses_are_failures_of_their_own() -> None:
    with SimServer(VLLM_SIM_ERRORS="1") as server:
        generator = LoadGenerator(server.url, 50)
        await generator.start()
        await until(lambda: generator.report.failed >= 5)
        report = await generator.stop()
    assert set(report.failures) == {"http 500"}
    assert report.failure_examples[0]["pod"] == "pod-a"


async def test_a_server_that_never_answers_is_a_timeout() -> None:
    async def silent(request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    runner, url = await serve(silent)
    generator = LoadGenerator(url, 50, timeout=0.2)
    await generator.start()
    await until(lambda: generator.report.failures.get("timeout", 0) >= 3)
    await generator.stop(grace=1)
    assert set(generator.report.failures) == {"timeout"}
    await asyncio.wait_for(runner.shutdown(), 1)
    for site in list(runner.sites):
        await site.stop()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'data: {"error": {"code": 500}}\n\ndata: [DONE]\n\n', "cut"),
        (b'data: {"choices": [{"finish_reason": "abort"}]}\n\ndata: [DONE]\n\n', "cut"),
        (b'data: {"choices": [{"finish_reason": null}]}\n\n', "cut"),
        (b"data: no json\n\n", "broken"),
    ],
)
async def test_a_stream_without_its_end_is_a_failure(body: bytes, kind: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body)

    runner, url = await serve(answer)
    generator = LoadGenerator(url, 100, stream_share=1)
    await generator.start()
    await until(lambda: generator.report.failed >= 2)
    report = await generator.stop()
    await runner.cleanup()
    assert set(report.failures) == {kind}
    assert report.answered == 0


async def test_arrivals_do_not_wait_for_answers_and_follow_the_seed() -> None:
    with SimServer(VLLM_SIM_HANG="1") as server:
        sent = []
        for _ in range(2):
            generator = LoadGenerator(server.url, 200, seed=7)
            await generator.start()
            await until(lambda g=generator: g.report.sent >= 30)
            report = await generator.stop(grace=0)
            sent.append(report.sent)
            assert report.in_flight == report.sent
    assert min(sent) >= 30


def test_share_of_pods_over_a_stretch_of_time() -> None:
    report = Report(0.0, timeline=[Second({"a": 9, "b": 1}), Second({"a": 1, "b": 1}), Second()])
    assert report.share({"b"}) == 2 / 12
    assert report.share({"b"}, since=1) == 0.5
    assert report.share({"b"}, since=2) is None


def test_quantiles_are_values_that_occurred() -> None:
    assert quantiles([4.0, 1.0, 2.0, 3.0, 5.0]) == {"p50": 3.0, "p90": 5.0, "p99": 5.0}
    assert quantiles([])["p50"] is None


@pytest.mark.parametrize("stopped_by", ["time", "SIGTERM"])
def test_the_command_writes_its_report_while_it_runs_and_at_the_end(stopped_by: str, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    seconds = "0.6" if stopped_by == "time" else "60"
    with SimServer() as server:
        command = [sys.executable, "-m", "harness.loadgen", "--url", server.url, "--rate", "30", "--max-tokens", "5"]
        command += [
            "--seconds",
            seconds,
            "--json",
            str(out),
            "--mix",
            "chat=0.2,code=0.8",
            "--header",
            "x-audience: me",
        ]
        process = subprocess.Popen(command, cwd=E2E, env={**os.environ})
        while not out.exists():
            assert process.poll() is None
        if stopped_by == "SIGTERM":  # by time it may be over before a busy machine looks
            assert json.loads(out.read_text())["done"] is False
            process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
    final = json.loads(out.read_text())
    assert final["done"] is True
    assert final["sent"] == final["answered"] == final["pods"]["pod-a"] > 5
    assert list(tmp_path.iterdir()) == [out]
