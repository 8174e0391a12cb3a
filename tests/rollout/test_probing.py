"""Probes over the life of a canary: whom the plan asks and when, whose answers are compared, and what follows."""

import asyncio
from itertools import pairwise

import pytest

from specfleet.controller.probes import CHAT, COMPLETIONS, Answer
from specfleet.judgement.questions import BUILT_IN, JSON_QUESTION, TOOL_QUESTION
from specfleet.rollout.likeness import answers_alike
from specfleet.rollout.probing import ASK_AGAIN, COMPARED_PODS
from story import Story

TARGET = {"huggingFace": {"repo": "Qwen/Qwen3-8B", "revision": "0" * 40}}
PAYLOAD = {"target": TARGET, "args": []}


def payload(*args, config="", **parts):
    template = {"spec": {"containers": [{"args": ["--speculative-config", config] if config else []}]}}
    return {**PAYLOAD, "args": list(args), "template": template, **parts}


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (payload(), True),
        (payload("--max-num-seqs=64", "--enable-auto-tool-choice"), True),
        (payload(config='{"method":"eagle3","num_speculative_tokens":5}', method="eagle3", image="vllm:v9"), True),
        (payload(target={"huggingFace": {"repo": "Qwen/Qwen3-8B", "revision": "1" * 40}}), False),
        (payload(target={"huggingFace": {"repo": "Qwen/Qwen3-14B"}}), False),
        (payload("--quantization=fp8"), False),
        (payload("-q", "fp8"), False),
        (payload("--quant", "fp8"), False),
        (payload("--kv_cache_dtype", "fp8"), False),
        (payload("--hf-overrides.rope_scaling.factor=2"), False),
        (payload("--chat-template=/x.jinja"), False),
        (payload(config='{"rejection_sample_method":"synthetic"}'), False),
    ],
)
def test_answers_are_compared_where_weights_revision_and_quantisation_are_equal(other, same):
    assert answers_alike(PAYLOAD, other) == answers_alike(other, PAYLOAD) == same
    assert answers_alike(other, other) == ("synthetic" not in str(other))


def test_equal_arguments_with_other_values_are_not_equal():
    assert answers_alike(payload("--dtype", "bfloat16"), payload("--dtype", "bfloat16", "--port-x"))
    assert not answers_alike(payload("--dtype", "bfloat16"), payload("--dtype", "float16"))


def test_of_payloads_that_do_not_say_their_target_nothing_is_promised():
    assert not answers_alike({}, {})


def ask_by(story, ask, afresh=False):
    """From now on pods are asked by `ask`; `afresh` as after a restart, when nobody knows what they said."""
    story.telemetry._ask = ask
    for watched in story.telemetry._watches.values():
        watched.probes.ask = ask
        if afresh:
            watched.probes.close()


@pytest.fixture
def asked():
    """Watches whom a story's operator asks: (seconds since the beginning, pod, path, body)."""

    def watch(story, afresh=False):
        seen, plain = [], story.fleet.ask

        async def ask(namespace, pod, payload, path, body):
            seen.append((story.clock.now - story.transcript.began, pod.name, path, body))
            return await plain(namespace, pod, payload, path, body)

        ask_by(story, ask, afresh)
        return seen

    return watch


def prompt_of(path, body):
    return body["messages"][0]["content"] if path == CHAT else body["prompt"]


def askings(seen, pods):
    """When the first built-in prompt was put to any of these pods."""
    first = BUILT_IN[0].prompt
    return [when for when, pod, path, body in seen if pod in pods and prompt_of(path, body) == first]


async def begun(at_rest, **how):
    """A fleet at rest whose next revision is about to come."""
    story = await at_rest(**how)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    return story


def guard(story, name="correct"):
    return next(item for item in story.status["canary"]["guards"] if item["name"] == name)


async def test_a_pod_is_asked_before_weight_and_again_while_the_canary_lives(at_rest, asked):
    story = await at_rest(spec={"rollout": {"steps": [{"weight": 20, "minSeconds": 800}]}})
    seen = asked(story)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run(720)
    (canary,) = (pod.name for pod in story.revision(2).pods)
    times = askings(seen, {canary})
    assert len(times) == 3
    assert all(ASK_AGAIN <= after - before < ASK_AGAIN + 30 for before, after in pairwise(times))
    assert story.weights == {"v1": 80, "v2": 20}
    assert story.watchdog.wrongs == []


async def test_stables_first_pods_are_asked_the_built_in_prompts_once_while_there_is_a_canary(at_rest, asked):
    story = await at_rest(spec={"replicas": 6})
    seen = asked(story, afresh=True)
    await story.run(400)
    assert seen == [], "nobody is asked at rest"
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    await story.run(60)
    mine = {pod.name for pod in story.revision(1).pods}
    prompts = {}
    for _, pod, path, body in seen:
        if pod in mine:
            prompts.setdefault(pod, []).append(prompt_of(path, body))
    assert len(prompts) == COMPARED_PODS
    assert all(asked_of == [question.prompt for question in BUILT_IN] for asked_of in prompts.values())


async def test_a_lone_stable_pod_is_asked_twice(at_rest, asked):
    story = await at_rest(spec={"replicas": 1})
    seen = asked(story, afresh=True)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    await story.run(30)
    assert len(askings(seen, {pod.name for pod in story.revision(1).pods})) == 2
    assert guard(story)["message"].startswith("answers are sane; they agree with stable's by 100 %")


async def test_a_canary_whose_greedy_answers_are_not_stables_is_aborted_before_its_first_weight(at_rest, golden):
    story = await at_rest()
    story.behave(2, "the new revision answers in good words, but not what stable does", garbled=True)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until_reason("CanaryAborted")
    await story.run(30)
    assert story.revision(2).aborted.startswith("CanaryIncorrect: greedy answers of ")
    golden(story)


async def test_answers_of_another_quantisation_are_not_held_against_the_canary(at_rest):
    story = await at_rest()
    story.behave(2, garbled=True)
    story.edit("quantised", engine={"args": ["--quantization=fp8"]})
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    await story.run(30)
    assert story.revision(2).aborted == ""
    assert guard(story)["message"] == "answers are sane; agreement with stable unknown"


async def test_a_rejected_revision_is_no_measure_of_the_one_that_returns(at_rest):
    story = await begun(at_rest)
    await story.run_until_reason("RetainingOld")
    story.behave(2, "the promoted revision turns out to talk another language", garbled=True)
    order = {"type": "Undo", "revision": story.revision(2).name, "id": "1"}
    story.edit("undo", rollout={"action": order})
    await story.run_until(lambda: story.stable.number == 1)
    assert story.revision(1).aborted == ""


async def test_a_stable_revision_that_talks_nonsense_does_not_hold_up_the_one_that_mends_it(at_rest):
    story = await at_rest()
    story.behave(1, "stable has turned to garbage", garbage=True)
    ask_by(story, story.fleet.ask, afresh=True)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.stable.number == 2)


async def test_where_stable_cannot_be_asked_agreement_is_unknown_and_holds_nothing(at_rest):
    story = await at_rest()
    plain, mine = story.fleet.ask, {pod.name for pod in story.revision(1).pods}

    async def ask(namespace, pod, payload, path, body):
        return (
            Answer(None, "connection refused") if pod.name in mine else await plain(namespace, pod, payload, path, body)
        )

    ask_by(story, ask, afresh=True)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    await story.run(30)
    said = guard(story)
    assert (said["state"], said["message"]) == ("passing", "answers are sane; agreement with stable unknown")


async def test_a_canary_that_goes_wrong_under_traffic_is_found_by_the_next_asking(at_rest):
    story = await begun(at_rest, spec={"rollout": {"steps": [{"weight": 20, "minSeconds": 3000}]}})
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    story.behave(2, "its answers turn to garbage", garbage=True)
    await story.run(2 * ASK_AGAIN)
    assert story.revision(2).aborted.startswith("CanaryIncorrect: 1 of ")
    assert story.weights == {"v1": 100}


async def test_without_a_chat_template_prompts_are_completed(at_rest, asked):
    story = await at_rest()
    for number in (1, 2):
        story.behave(number, template=False)
    seen = asked(story, afresh=True)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    await story.run(30)
    assert {path for _, _, path, _ in seen} == {CHAT, COMPLETIONS}
    assert guard(story)["message"].startswith("answers are sane; they agree with stable's by 100 %")


async def test_the_users_probes_are_asked_and_one_that_fails_ends_the_canary(at_rest):
    probes = [{"prompt": "What is 2+2?", "expect": "(?i)AN ANSWER"}, {"prompt": "hello", "expect": "^bye$"}]
    story = await begun(at_rest, spec={"rollout": {"probes": probes[:1]}})
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    story.edit("another probe", rollout={"probes": probes})
    await story.run(60)
    assert story.revision(2).aborted == (
        f"CanaryIncorrect: 1 of 11 probes failed: {story.revision(2).name}-5 to 'hello': 'an answer to hello',"
        " in which '^bye$' is not found"
    )


async def test_a_first_revision_held_by_a_wrong_pattern_serves_when_the_pattern_is_mended():
    story = Story(spec={"rollout": {"probes": [{"prompt": "hello", "expect": "bye"}]}})
    await story.run_until_reason("PodsCrashing", seconds=100)
    assert "in which 'bye' is not found" in story.status["message"]
    story.edit("mended", rollout={"probes": [{"prompt": "hello", "expect": "hello"}]})
    await story.run_until_reason("Stable", seconds=100)


@pytest.mark.parametrize("args", [["--enable-auto-tool-choice", "--tool-call-parser=hermes"], ["--enable_auto_tool"]])
async def test_a_tool_is_offered_only_where_the_arguments_enable_tools(at_rest, asked, args):
    story = await at_rest()
    seen = asked(story)
    story.edit("tools", engine={"args": args})
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    canary = {pod.name for pod in story.revision(2).pods}
    asked_of = {pod: [prompt_of(path, body) for _, name, path, body in seen if name == pod] for pod in canary}
    questions = [question.prompt for question in (*BUILT_IN, JSON_QUESTION, TOOL_QUESTION)]
    assert all(prompts[: len(questions)] == questions for prompts in asked_of.values())
    assert not any("tools" in body for _, pod, _, body in seen if pod not in canary)


async def test_a_refusal_to_enable_tools_offers_none(at_rest, asked):
    story = await at_rest()
    seen = asked(story)
    story.edit("no tools", engine={"args": ["--no-enable-auto-tool-choice"]})
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    assert not any("tools" in body for *_, body in seen)


async def test_a_pod_that_cannot_be_asked_again_holds_and_one_that_can_goes_on(at_rest):
    story = await begun(at_rest, spec={"rollout": {"steps": [{"weight": 20, "minSeconds": 100}, {"weight": 50}]}})
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    plain = story.fleet.ask

    async def deaf(*_):
        return Answer(None, "answered 401: the API key is not accepted")

    ask_by(story, deaf)
    await story.run_until_reason("ProbeUnknown", seconds=2 * ASK_AGAIN)
    assert story.weights["v2"] > 0, "what it has it keeps"
    assert guard(story)["state"] == "unknown"
    ask_by(story, plain)
    await story.run_until(lambda: story.stable.number == 2)
    assert story.watchdog.wrongs == []


async def test_part_of_the_answers_is_no_pass(at_rest):
    story = await at_rest()
    plain, left = story.fleet.ask, [3]

    async def ask(*args):
        left[0] -= 1
        return await plain(*args) if left[0] >= 0 else Answer(None, "connection reset")

    ask_by(story, ask)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until_reason("ProbeUnknown", seconds=100)
    assert story.weights == {"v1": 100}


async def test_with_probes_switched_off_nobody_is_asked_and_correct_is_unknown(at_rest, asked):
    story = await at_rest()
    seen = asked(story)
    story.telemetry._probing = False
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    assert seen == []
    assert (guard(story)["state"], guard(story)["message"]) == ("unknown", "probes are off")


@pytest.mark.parametrize("block", [10, 60, 600])
async def test_a_canary_that_gets_only_probes_has_no_traffic(at_rest, block):
    analysis = {"blockSeconds": block, "scrapeSeconds": 5}
    story = await at_rest(spec={"rollout": {"steps": [{"weight": 20, "minSeconds": 10}], "analysis": analysis}})
    story.fleet.arrivals = 0.0
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until_reason("NoTraffic", seconds=12 * block + 300)
    seen = await story.observe()
    assert seen.evidence.blocks
    assert all(block.canary.http_requests == 0 and block.canary.drafts == 0 for block in seen.evidence.blocks)


async def test_what_the_guards_say_is_not_rewritten_at_every_look(at_rest):
    story = await begun(at_rest, spec={"rollout": {"steps": [{"weight": 20, "minSeconds": 900}]}})
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    await story.run(60)
    told = set()
    for _ in range(60):
        await story.run(5)
        told.add(tuple((item["name"], item["state"], item["message"]) for item in story.status["canary"]["guards"]))
    assert len(told) <= 2


async def test_hanging_probes_of_stable_hold_up_nothing(at_rest):
    story = await at_rest()
    plain, mine = story.fleet.ask, {pod.name for pod in story.revision(1).pods}

    async def ask(namespace, pod, payload, path, body):
        if pod.name in mine:
            await asyncio.Event().wait()
        return await plain(namespace, pod, payload, path, body)

    ask_by(story, ask, afresh=True)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.stable.number == 2)
    story.telemetry.forget(story.key)
