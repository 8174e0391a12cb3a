"""A real vLLM on CPU is asked the operator's probe prompts by the operator's own client, one server after the other."""

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from arms import raw_pod
from harness import vllm_fleet, vllm_host
from specfleet.controller import vllm
from specfleet.controller.probes import Probes
from specfleet.controller.vllm import VllmClient
from specfleet.judgement.agreement import Answers, agreement
from specfleet.judgement.guards import ProbeFacts
from specfleet.judgement.questions import BUILT_IN, JSON_QUESTION, TOOL_QUESTION
from specfleet.rollout.probing import Asking
from specfleet.rollout.world import pod

pytestmark = pytest.mark.vllm
TINY = str(vllm_host.MODELS / "tiny-draft")
DRAFT = {"method": "draft_model", "model": TINY, "num_speculative_tokens": 4}
ARGS = [arg for arg in vllm_fleet.ARGS if not arg.startswith("--middleware")]
TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")


async def asked(url: str, monkeypatch: pytest.MonkeyPatch, times: int = 1) -> tuple[ProbeFacts, list[Answers]]:
    monkeypatch.setattr(vllm.names, "PORT", urlsplit(url).port)
    raw = raw_pod("", "real")
    target = pod({**raw, "status": {**raw["status"], "podIP": "127.0.0.1"}})
    questions = (*BUILT_IN, JSON_QUESTION, TOOL_QUESTION)
    nobody: Any = None  # no API key is read
    async with VllmClient(nobody) as client:
        probes = Probes(client.ask, lambda: 1.0, asyncio.Semaphore(1))
        for _ in range(times):
            heard = asyncio.Event()
            probes.start("chat", Asking(target, {"model": "tiny"}, questions, judged=True), heard.set)
            async with asyncio.timeout(300):
                await heard.wait()
        return probes.facts(2.0)[target.life], list(probes.answers().get(target.life, ()))


async def test_speculation_changes_no_greedy_answer_and_every_question_is_understood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with vllm_host.serve(*ARGS) as url:
        facts, stable = await asked(url, monkeypatch, times=2)
    assert (facts.failed, facts.unknown) == (0, 0), facts.message
    assert facts.passed == len(BUILT_IN) + 1, "it says that it has no tools"
    with vllm_host.serve(*ARGS, "--speculative-config", json.dumps(DRAFT), *TOOLS) as url:
        facts, canary = await asked(url, monkeypatch)
    assert (facts.failed, facts.unknown) == (0, 0), facts.message
    assert facts.passed == len(BUILT_IN) + 2
    found = agreement({"canary": canary[-1]}, [stable])
    assert found is not None
    assert canary[-1].chat, "the tiny target has a chat template"
    assert (found.stable, found.canary) == (1.0, 1.0)
