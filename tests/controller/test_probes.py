"""Probe prompts: how a pod is asked, what stops the asking, what is kept of it, and what it is counted as."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arms import one_pod
from corruption import corruptions
from specfleet.controller import probes
from specfleet.controller.probes import CHAT, COMPLETIONS, MAX_PROMPT, PROBES_AT_ONCE, Answer, Probes
from specfleet.judgement.questions import (
    BUILT_IN,
    CALL_TOKENS,
    JSON_QUESTION,
    MAX_TEXT,
    MAX_TOKENS,
    PROMPTS,
    TOOL,
    TOOL_QUESTION,
    Question,
)
from specfleet.rollout.probing import Asking
from specfleet.telemetry.asked import Asked

POD = one_pod("qwen-a-1")
NO_TEMPLATE = Answer(None, "answered 400: you must provide a chat template", wrong=True, status=400)
USAGE = {"prompt_tokens": 7, "completion_tokens": 20}


def completed(text, reason="length", path=CHAT, **more):
    said = {"message": {"content": text, **more}} if path == CHAT else {"text": text}
    return Answer({"choices": [{**said, "finish_reason": reason}], "usage": USAGE}, status=200)


def server(*answers, template=True):
    """An `Ask` with these answers and then good ones; it keeps the paths and bodies that it was sent."""
    left = list(answers)

    async def ask(namespace, pod, payload, path, body):
        ask.sent.append((path, body))
        if path == CHAT and not template:
            return NO_TEMPLATE
        if left:
            return left.pop(0)
        if "response_format" in body:
            return completed('{"city": "Paris"}', "stop", path)
        return completed("Paris, of course", path=path)

    ask.sent = []
    return ask


class Asker:
    """Probes of one SDD over an `Ask`."""

    def __init__(self, ask):
        self.now, self.news = 100.0, 0
        self.probes = Probes(ask, lambda: self.now, asyncio.Semaphore(PROBES_AT_ONCE))

    async def ask(self, *questions, judged=True, payload=None, pod=POD):
        self.probes.start("chat", Asking(pod, payload or {"model": "qwen3"}, questions, judged), self.heard)
        for _ in range(200):
            await asyncio.sleep(0)
        return self.probes.facts(1000.0).get(pod.life)

    def heard(self):
        self.news += 1


async def asked(ask, *questions, **how):
    return await Asker(ask).ask(*(questions or BUILT_IN), **how)


async def test_every_prompt_is_asked_greedily_as_chat_under_the_frozen_model_name():
    ask = server()
    facts = await asked(ask)
    assert (facts.passed, facts.failed, facts.unknown, facts.at) == (len(PROMPTS), 0, 0, 100.0)
    assert [body["messages"] for _, body in ask.sent] == [[{"role": "user", "content": text}] for text in PROMPTS]
    assert {(path, body["model"], body["temperature"], body["max_tokens"]) for path, body in ask.sent} == {
        (CHAT, "qwen3", 0, MAX_TOKENS)
    }


@pytest.mark.parametrize("refusal", [NO_TEMPLATE, Answer(None, "answered 404: no chat here", wrong=True, status=404)])
async def test_a_model_without_a_chat_template_completes_and_is_tried_by_chat_once(refusal):
    ask = server(refusal, *[completed("Paris", path=COMPLETIONS)] * len(PROMPTS))
    assert (await asked(ask)).passed == len(PROMPTS)
    assert [path for path, _ in ask.sent] == [CHAT, *[COMPLETIONS] * len(PROMPTS)]
    assert [body["prompt"] for _, body in ask.sent[1:]] == list(PROMPTS)


async def test_a_refusal_that_is_not_about_the_template_is_the_servers_fault():
    facts = await asked(server(Answer(None, "answered 400: broken", wrong=True, status=400)))
    assert (facts.passed, facts.failed) == (0, 1)
    assert facts.message.endswith("answered 400: broken")


def test_the_prompts_come_to_the_drafts_that_the_acceptance_guard_needs():
    assert len(PROMPTS) * (MAX_TOKENS - 1) >= 200  # one draft per token after the first, when nothing is accepted


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(None, "500: engine died", wrong=True, status=500), "engine died"),
        (completed("!" * 40), "one character"),
        (completed("", "stop"), "empty"),
        (completed(None, "stop"), "empty"),
        (Answer({"choices": []}), "not a completion"),
        (Answer({"object": "list"}), "not a completion"),
        (Answer({"choices": [None]}), "not a completion"),
        (Answer({"choices": [{"finish_reason": "stop"}]}), "not a completion"),
    ],
)
async def test_a_wrong_answer_fails_and_ends_the_asking(answer, why):
    ask = server(completed("Paris"), answer)
    facts = await asked(ask)
    assert (facts.passed, facts.failed, facts.unknown) == (1, 1, 0)
    assert why in facts.message
    assert len(ask.sent) == 2


async def test_who_could_not_be_asked_is_unknown_not_wrong():
    facts = await asked(server(Answer(None, "answered 401: no key", status=401)))
    assert (facts.passed, facts.failed, facts.unknown) == (0, 0, 1)
    assert "401: no key" in facts.message


async def test_what_a_model_thinks_is_part_of_its_answer():
    thinking = completed(None, reasoning="The user wants primes")
    assert (await asked(server(thinking), Question("primes", expect="wants"))).passed == 1


@pytest.mark.parametrize(("pattern", "passed", "failed"), [("(?i)PARIS", 1, 0), (r"^\d+$", 0, 1)])
async def test_a_users_pattern_must_be_found_in_the_answer(pattern, passed, failed):
    facts = await asked(server(), Question("The capital of France?", expect=pattern))
    assert (facts.passed, facts.failed) == (passed, failed)
    if failed:
        assert (
            facts.message
            == f"qwen-a-1 to 'The capital of France?': 'Paris, of course', in which {pattern!r} is not found"
        )


@pytest.mark.parametrize(
    ("text", "reason", "fault"),
    [
        ('{"city": "Paris"}', "stop", ""),
        ('{"city": "Par', "length", ""),
        ("  \n", "length", ""),
        (None, "length", ""),  # it was still thinking
        ("Paris", "length", "no JSON object"),
        ('{"city": "Par', "stop", "no JSON object"),
        ("[1]", "stop", "no JSON object"),
        ("{}", "abort", "finish_reason 'abort'"),
    ],
)
async def test_an_object_that_was_asked_for_is_one_or_the_beginning_of_one(text, reason, fault):
    ask = server(completed(text, reason))
    facts = await asked(ask, JSON_QUESTION)
    assert ask.sent[0][1]["response_format"] == {"type": "json_object"}
    assert (facts.failed, fault in facts.message) == (bool(fault), True)


def call(name=TOOL, arguments='{"city": "Paris"}'):
    return [{"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}]


@pytest.mark.parametrize(
    ("reason", "calls", "fault"),
    [
        ("tool_calls", call(), ""),
        ("stop", [], ""),  # it need not call
        ("length", call(arguments='{"ci'), ""),
        ("tool_calls", call(arguments='{"ci'), "arguments that are no JSON object"),
        ("tool_calls", call("get_wea"), "calls 'get_wea', which was not offered"),
        ("tool_calls", [{"function": None}], "not a completion"),
    ],
)
async def test_a_tool_call_names_the_tool_and_its_arguments_are_an_object(reason, calls, fault):
    ask = server(completed(None, reason, tool_calls=calls))
    facts = await asked(ask, TOOL_QUESTION)
    assert (ask.sent[0][1]["tool_choice"], ask.sent[0][1]["max_tokens"]) == ("auto", CALL_TOKENS)
    assert (facts.failed, fault in facts.message) == (bool(fault), True)


@pytest.mark.parametrize("status", [400, 404])
@pytest.mark.parametrize("question", [JSON_QUESTION, TOOL_QUESTION])
async def test_what_a_server_does_not_have_is_neither_fault_nor_pass(question, status):
    refusal = Answer(None, f"answered {status}: not here", wrong=True, status=status)
    facts = await asked(server(completed("Paris"), refusal), BUILT_IN[0], question)
    assert (facts.passed, facts.failed, facts.unknown) == (1, 0, 0)


async def test_without_a_chat_template_no_tool_is_offered():
    ask = server(template=False)
    facts = await asked(ask, BUILT_IN[0], TOOL_QUESTION)
    assert (facts.passed, facts.failed) == (1, 0)
    assert [path for path, _ in ask.sent] == [CHAT, COMPLETIONS]


async def test_whole_answers_are_kept_for_comparison_the_last_two():
    asker = Asker(server(*[completed(f"answer {number}") for number in range(3 * len(PROMPTS))]))
    for _ in range(3):
        await asker.ask(*BUILT_IN, judged=False)
    (kept,) = asker.probes.answers().values()
    assert [answers.texts[0] for answers in kept] == ["answer 8", "answer 16"]
    assert {answers.chat for answers in kept} == {True}
    assert asker.probes.facts(1000.0) == {}, "stable's pods are not judged by it"
    assert asker.news == 3


@pytest.mark.parametrize("answer", [Answer(None, "connection refused"), Answer({"object": "list"}, status=200)])
async def test_an_asking_that_was_not_answered_whole_is_no_answer_and_remembered_as_tried(answer):
    asker = Asker(server(completed("Paris"), answer))
    await asker.ask(*BUILT_IN, judged=False)
    assert asker.probes.answers() == {}
    assert asker.probes.tried() == {POD.life: 100.0}


async def test_the_last_good_answer_stays_while_a_pod_is_asked_again_and_a_bad_one_replaces_it():
    asker, gate = Asker(server()), asyncio.Event()
    await asker.ask(*BUILT_IN)
    plain = asker.probes.ask

    async def slow(*args):
        await gate.wait()
        return completed("!" * 40)

    asker.probes.ask = slow
    assert (await asker.ask(*BUILT_IN)).passed == len(PROMPTS)
    gate.set()
    assert (await asker.ask(*BUILT_IN)).failed == 1
    assert plain.sent


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (Answer(None, "no answer in 60 s", wrong=True), False),
        (Answer(None, "answered 500", wrong=True, status=500), False),
        (Answer(None, "answered 404", wrong=True, status=404), True),
        (completed("!" * 40), True),
    ],
)
async def test_of_a_pod_that_has_answered_before_only_an_answer_is_wrong_not_its_load(answer, wrong):
    asker = Asker(server(*[completed("Paris")] * len(PROMPTS), completed("Paris"), answer))
    await asker.ask(*BUILT_IN)
    facts = await asker.ask(*BUILT_IN)
    assert (facts.failed, facts.unknown) == ((1, 0) if wrong else (0, 1))


async def test_the_first_good_answer_is_settled_by_a_later_scrape_and_the_next_ones_at_once():
    asker = Asker(server())
    await asker.ask(*BUILT_IN)
    assert [asker.probes.facts(when)[POD.life].settled for when in (None, 100.0, 101.0)] == [False, False, True]
    asker.now = 400.0
    assert (await asker.ask(*BUILT_IN)).at == 400.0
    assert asker.probes.facts(399.0)[POD.life].settled


async def test_what_was_asked_is_counted_as_the_pod_counts_it():
    failed = Answer(None, "answered 500", wrong=True, status=500)
    asker = Asker(server(NO_TEMPLATE, completed("Paris", path=COMPLETIONS), failed))
    await asker.ask(*BUILT_IN)
    assert asker.probes.asked(POD) == Asked(requests=3, errors=1, finished=1, prompt_tokens=7, generation_tokens=20)
    assert asker.probes.asked(one_pod("another")) == Asked()


async def test_an_open_question_counts_as_all_that_it_may_bring():
    async def hang(*_):
        await asyncio.Event().wait()

    asker = Asker(hang)
    await asker.ask(*BUILT_IN)
    assert asker.probes.asked(POD) == Asked(in_flight=MAX_TOKENS)
    asker.probes.close()


async def test_tokens_that_a_server_does_not_tell_count_as_all_that_were_allowed():
    asker = Asker(
        server(Answer({"choices": [{"message": {"content": "Paris"}, "finish_reason": "stop"}], "usage": [1]}))
    )
    await asker.ask(BUILT_IN[0])
    assert asker.probes.asked(POD) == Asked(requests=1, finished=1, generation_tokens=MAX_TOKENS)


async def test_a_pod_that_is_gone_is_forgotten_and_asked_no_more():
    async def hang(*_):
        await asyncio.Event().wait()

    asker = Asker(hang)
    await asker.ask(*BUILT_IN)
    asker.probes.keep([("another", 0)])
    await asyncio.sleep(0)
    assert asker.probes.asked(POD) == Asked()
    assert asker.news == 0


GOOD = {
    "choices": [{"message": {"content": "Paris", "tool_calls": call()}, "finish_reason": "stop", "index": 0}],
    "usage": USAGE,
}


@given(
    corruptions(GOOD) | corruptions({"choices": [{"text": "Paris", "finish_reason": "length"}]}),
    st.sampled_from([BUILT_IN[0], JSON_QUESTION, TOOL_QUESTION, Question("2+2=", expect="4")]),
)
def test_whatever_a_pod_answers_is_judged_and_kept_small(body, question):
    asker = Asker(server(Answer(body if isinstance(body, dict) else {}, status=200)))
    facts = asyncio.run(asker.ask(question))
    assert (facts.passed + facts.failed, facts.unknown) == (1, 0)
    assert len(facts.message) < 500
    assert facts.message.encode().decode() == facts.message
    asked = asker.probes.asked(POD)
    assert (asked.requests, asked.finished) == (1, 1)
    assert asked.generation_tokens <= question.max_tokens
    assert asked.prompt_tokens <= MAX_PROMPT


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("text", [["Paris"], {"a": "Paris"}, 7])
async def test_a_text_that_is_none_is_no_completion(path, text):
    facts = await asked(server(*([] if path == CHAT else [NO_TEMPLATE]), completed(text, path=path)))
    assert (facts.failed, facts.message.rpartition(": ")[2]) == (1, "not a completion")


async def test_a_completion_of_null_is_an_empty_one():
    assert "an empty answer" in (await asked(server(completed(None, path=COMPLETIONS)))).message


async def test_of_an_endless_answer_only_as_much_is_kept_as_the_tokens_can_have():
    asker = Asker(server(*[completed("of course " * 100_000)] * len(PROMPTS)))
    await asker.ask(*BUILT_IN)
    ((kept,),) = asker.probes.answers().values()
    assert {len(text) for text in kept.texts} == {MAX_TEXT}


async def test_a_fleet_whose_pods_hang_leaves_room_for_the_others():
    async def hang(*_):
        await asyncio.Event().wait()

    slow, other = Asker(hang), Asker(server())
    other.probes.slots = slow.probes.slots
    for number in range(2 * PROBES_AT_ONCE):
        slow.probes.start("chat", Asking(one_pod(f"p{number}"), {}, BUILT_IN, True), slow.heard)
    await asyncio.sleep(0)
    assert (await other.ask(*BUILT_IN)).passed == len(PROMPTS)
    slow.probes.close()


async def test_an_asking_that_never_ends_is_given_up(monkeypatch):
    monkeypatch.setattr(probes, "MAX_ASKING", 0.0)

    async def slow(*_):
        await asyncio.sleep(0.01)
        return completed("Paris")

    facts = await asked(slow)
    assert (facts.passed, facts.failed, facts.unknown) == (0, 0, 1)
    assert "took longer" in facts.message


async def test_a_fault_of_our_own_is_unknown_and_the_pod_is_not_asked_again_at_once():
    async def broken(*_):
        raise ZeroDivisionError

    facts = await asked(broken)
    assert (facts.passed, facts.failed, facts.unknown, facts.message) == (0, 0, 1, "qwen-a-1: ZeroDivisionError")
