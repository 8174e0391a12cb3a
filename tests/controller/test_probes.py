"""Probe prompts: asked in turn, stopped at the first that is wrong or that nobody could answer."""

import pytest

from arms import one_pod
from specfleet.controller.probes import MAX_TOKENS, PROMPTS, Answer, probe
from specfleet.judgement.guards import ProbeFacts

POD = one_pod("qwen-a-1")
GOOD = Answer({"choices": [{"text": "Paris, of course", "finish_reason": "length"}]})


def asked(*answers):
    """An `Ask` with these answers and then good ones; it keeps the bodies that it was sent."""
    left = list(answers)

    async def ask(namespace, pod, payload, body):
        ask.bodies.append(body)
        return left.pop(0) if left else GOOD

    ask.bodies = []
    return ask


async def test_every_prompt_is_asked_greedily_of_the_frozen_model_name():
    ask = asked()
    assert await probe(ask, "chat", POD, {"model": "qwen3"}) == ProbeFacts(len(PROMPTS), 0, 0, "")
    assert [body["prompt"] for body in ask.bodies] == list(PROMPTS)
    assert {(body["model"], body["temperature"], body["max_tokens"]) for body in ask.bodies} == {
        ("qwen3", 0, MAX_TOKENS)
    }


def test_the_prompts_come_to_the_drafts_that_the_acceptance_guard_needs():
    assert len(PROMPTS) * (MAX_TOKENS - 1) >= 200  # one draft per token after the first, when nothing is accepted


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(None, "500: engine died", wrong=True), "engine died"),
        (Answer({"choices": [{"text": "!" * 40, "finish_reason": "length"}]}), "one character"),
        (Answer({"choices": [{"text": "", "finish_reason": "stop"}]}), "empty"),
        (Answer({"choices": []}), "not a completion"),
        (Answer({"object": "list"}), "not a completion"),
        (Answer({"choices": [None]}), "not a completion"),
        (Answer({"choices": [{"finish_reason": "stop"}]}), "not a completion"),
    ],
)
async def test_a_wrong_answer_fails_and_ends_the_asking(answer, why):
    ask = asked(GOOD, answer)
    facts = await probe(ask, "chat", POD, {})
    assert (facts.passed, facts.failed, facts.unknown) == (1, 1, 0)
    assert why in facts.message
    assert len(ask.bodies) == 2


async def test_who_could_not_be_asked_is_unknown_not_wrong():
    facts = await probe(asked(Answer(None, "401: no key")), "chat", POD, {})
    assert (facts.passed, facts.failed, facts.unknown) == (0, 0, 1)
    assert "401: no key" in facts.message
