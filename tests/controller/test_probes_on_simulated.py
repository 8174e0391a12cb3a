"""The operator's own client asks simulated servers as it asks vLLM: what it finds, and that its ledger is theirs."""

import asyncio
from urllib.parse import urlsplit

import pytest

from arms import raw_pod
from simserver import SimServer
from simulated import Page
from specfleet.controller import vllm
from specfleet.controller.probes import Probes
from specfleet.controller.vllm import VllmClient
from specfleet.judgement.agreement import agreement
from specfleet.judgement.questions import BUILT_IN, JSON_QUESTION, TOOL_QUESTION, Question
from specfleet.rollout.probing import Asking
from specfleet.rollout.world import pod

SUM = Question("2+2=", expect=r"\b4\b")
TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser=hermes")


async def asked(server, monkeypatch, *questions, name="a"):
    """What asking a server came to: facts, answers, and what the operator believes that it has asked."""
    monkeypatch.setattr(vllm.names, "PORT", urlsplit(server.url).port)
    raw = raw_pod("", name)
    target = pod({**raw, "status": {**raw["status"], "podIP": "127.0.0.1"}})
    async with VllmClient(None) as client:
        probes, heard = Probes(client.ask, lambda: 1.0, asyncio.Semaphore(1)), asyncio.Event()
        probes.start("chat", Asking(target, {"model": "target"}, questions, judged=True), heard.set)
        async with asyncio.timeout(30):
            await heard.wait()
        return probes.facts(2.0)[target.life], probes.answers().get(target.life, ()), probes.asked(target)


async def test_a_sane_server_passes_every_question_and_the_ledger_is_what_its_page_says(monkeypatch):
    with SimServer(*TOOLS) as server:
        facts, answers, ledger = await asked(server, monkeypatch, *BUILT_IN, JSON_QUESTION, TOOL_QUESTION, SUM)
        page = Page(server.get("/metrics"))
    assert (facts.passed, facts.failed, facts.unknown, facts.message) == (len(BUILT_IN) + 3, 0, 0, "")
    assert answers[0].chat
    assert (ledger.requests, ledger.finished) == (page["http_requests_total"], page["request_success_total"])
    assert (ledger.prompt_tokens, ledger.generation_tokens) == (
        page["prompt_tokens_total"],
        page["generation_tokens_total"],
    )
    assert ledger.in_flight == 0


async def test_without_template_and_tools_it_is_asked_for_neither(monkeypatch):
    with SimServer(VLLM_SIM_CHAT_TEMPLATE="false") as server:
        facts, answers, ledger = await asked(server, monkeypatch, *BUILT_IN, JSON_QUESTION, TOOL_QUESTION)
        page = Page(server.get("/metrics"))
    assert (facts.passed, facts.failed, facts.unknown) == (len(BUILT_IN) + 1, 0, 0)
    assert not answers[0].chat
    assert ledger.requests == page["http_requests_total"] == len(BUILT_IN) + 2
    with SimServer() as server:
        facts, *_ = await asked(server, monkeypatch, *BUILT_IN, TOOL_QUESTION)
    assert (facts.passed, facts.failed) == (len(BUILT_IN), 0)


@pytest.mark.parametrize(("dial", "broken"), [({}, False), ({"VLLM_SIM_GARBLED": "true"}, True)])
async def test_pods_of_one_target_agree_whatever_they_speculate_with_and_one_that_garbles_does_not(
    monkeypatch, dial, broken
):
    said = {}
    for name, speculation, how in (
        ("stable", None, {}),
        ("canary", '{"method":"ngram","num_speculative_tokens":5}', dial),
    ):
        with SimServer(speculation=speculation, **how) as server:
            facts, said[name], _ = await asked(server, monkeypatch, *BUILT_IN, name=name)
            assert facts.failed == 0
    found = agreement({"canary": said["canary"][-1]}, [said["stable"], said["stable"]])
    assert found.broken == broken
    assert (found.canary == 1.0) != broken
