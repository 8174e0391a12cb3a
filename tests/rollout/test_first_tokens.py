"""A canary under a limit on the time to the first token, and one whose KV cache is small."""

import pytest

from specfleet.rollout.memory import Memory, Rollout

SLO = {"timeToFirstTokenMs": 2000, "timePerOutputTokenMs": 40}


def longer(story):
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})


def metric(story, name):
    return next((item for item in story.status.get("metrics", ()) if item["name"] == name), None)


async def canary_at(at_rest, weight=20, slo=SLO, **behaviour):
    story = await at_rest(spec={"slo": slo} if slo else {})
    story.behave(2, **behaviour)
    longer(story)
    await story.run_until(lambda: story.weights.get("v2", 0) >= weight)
    return story


async def test_a_canary_with_more_late_first_tokens_is_aborted_and_the_bound_is_named(at_rest):
    story = await canary_at(at_rest, late=0.3)
    await story.run_until_reason("CanaryAborted")
    latch = story.revision(2).aborted
    assert latch.startswith("CanaryRegressed: ttft -")
    assert "(+ is fewer beyond 1 s, the bucket below 2 s) against a margin of 2" in latch


async def test_an_equal_canary_is_proven_in_first_tokens_too(at_rest):
    story = await canary_at(at_rest)
    await story.run_until(lambda: story.stable.number == 2)
    proof = next(item for item in story.status["decisions"] if item["reason"] == "CanaryProven")
    assert "ttft +0.0 points" in proof["message"]


async def test_without_a_limit_late_first_tokens_are_not_looked_at(at_rest):
    story = await canary_at(at_rest, slo=None, late=0.9)
    await story.run(60)
    assert metric(story, "ttft") is None
    await story.run_until(lambda: story.stable.number == 2)


@pytest.mark.parametrize("number", [1, 2])
async def test_a_limit_that_pages_without_the_histogram_cannot_show_holds_the_canary(at_rest, number):
    story = await at_rest(spec={"slo": SLO})
    story.behave(number, timed=False)
    longer(story)
    await story.run_until(lambda: story.weights.get("v2", 0) >= 20)
    await story.run(900)
    assert story.reason == "NoTraffic"
    assert story.status["message"].startswith("ttft: no first token was timed within 2 s in ")
    assert story.stable.number == 1
    assert story.weights == {"v1": 80, "v2": 20}


async def test_a_limit_that_changes_amid_a_canary_is_gathered_for_anew(at_rest):
    story = await canary_at(at_rest, weight=50)
    story.edit("stay here", paused=True)
    await story.run(60)
    blocks = metric(story, "speed")["blocks"]
    story.edit("a stricter limit", slo={"timeToFirstTokenMs": 600})
    await story.run(30)
    assert metric(story, "ttft")["blocks"] < 4
    assert metric(story, "speed")["blocks"] > blocks
    story.edit("go on", paused=False)
    await story.run_until(lambda: story.stable.number == 2)


async def test_time_per_output_token_is_shown_of_each_arm_against_its_limit(at_rest):
    story = await canary_at(at_rest, weight=50, slo={"timePerOutputTokenMs": 5})
    story.edit("stay here", paused=True)
    await story.run(60)
    assert story.status["stable"]["timePerOutputToken"] == "4.8 ms ≤ 5 ms"
    assert story.status["canary"]["timePerOutputToken"] == "4.5 ms ≤ 5 ms"
    story.edit("a stricter limit", slo={"timePerOutputTokenMs": 4})
    await story.run(30)
    assert story.status["stable"]["timePerOutputToken"] == "4.8 ms > 4 ms"


async def test_time_per_output_token_is_no_gate(at_rest):
    story = await canary_at(at_rest, slo={"timePerOutputTokenMs": 1})
    await story.run_until(lambda: story.stable.number == 2)


# KV caches


async def test_a_canary_whose_kv_cache_is_small_is_aborted_before_its_first_weight(at_rest):
    story = await at_rest()
    story.behave(2, "something holds memory on the canary's GPUs", blocks=20_000)
    longer(story)
    await story.run_until_reason("CanaryAborted")
    assert story.revision(2).aborted == (
        "CanaryDoesNotFit: 320000 tokens of KV cache in a pod where stable has 384000: 16.7 % less, where 0 % were"
        " expected at most"
    )
    assert story.weights == {"v1": 100}
    assert "every revision" not in story.text()
    assert story.watchdog.wrongs == []


async def test_once_it_carries_requests_a_small_kv_cache_ends_no_canary(at_rest):
    story = await canary_at(at_rest)
    story.behave(2, "a later pod has less", blocks=20_000)
    await story.run_until(lambda: story.stable.number == 2)


async def test_what_an_undo_returns_to_need_not_have_as_large_a_kv_cache(at_rest):
    story = await at_rest()
    story.behave(1, blocks=20_000)
    longer(story)
    await story.run_until(lambda: story.stable.number == 2)
    await story.run(120)
    action = {"type": "Undo", "revision": story.revision(2).name, "id": "1"}
    story.edit("undo", rollout={"action": action})
    await story.run_until(lambda: story.stable.number == 1)


@pytest.mark.parametrize("number", [1, 2])
async def test_a_kv_cache_of_unknown_size_is_no_obstacle_and_is_shown(at_rest, number):
    story = await at_rest()
    story.behave(number, blocks=None)
    longer(story)
    await story.run_until(lambda: story.weights.get("v2", 0) >= 20)
    await story.run(30)
    assert fits(story)["state"] == "unknown"
    await story.run_until(lambda: story.stable.number == 2)


def fits(story):
    (said,) = (item for item in story.status["canary"]["guards"] if item["name"] == "fits")
    return said


async def test_the_size_of_the_kv_cache_is_shown_against_stables(at_rest):
    story = await canary_at(at_rest, blocks=23_280)
    await story.run(30)
    assert (fits(story)["state"], fits(story)["message"]) == (
        "passing",
        "372480 tokens of KV cache a pod, -3 % against stable's 384000; at least -5 % expected",
    )


async def test_a_small_cache_of_a_later_pod_is_shown_and_no_pass(at_rest):
    story = await canary_at(at_rest)
    story.behave(2, "a later pod has less", blocks=20_000)
    await story.run(30)
    assert fits(story)["state"] == "unknown"
    assert fits(story)["message"].endswith("asked before the first weight only")


# Margins


async def test_the_margin_with_which_a_rollout_began_stays_while_replicas_change(at_rest):
    story = await canary_at(at_rest)
    story.edit("stay here", paused=True)
    await story.run(30)
    assert metric(story, "speed")["margin"] == "6.0"
    story.edit("replicas 4 -> 2", replicas=2)
    await story.run(60)
    assert metric(story, "speed")["margin"] == "6.0"
    story.restart("the operator dies")
    await story.run(60)
    assert metric(story, "speed")["margin"] == "6.0"


async def test_a_margin_that_the_user_sets_amid_a_rollout_holds_at_once(at_rest):
    story = await canary_at(at_rest)
    story.edit("a wide margin", rollout={"analysis": {"margins": {"speedPercent": 30}}})
    await story.run(30)
    assert metric(story, "speed")["margin"] == "30.0"


async def test_the_margin_that_can_be_resolved_follows_the_fleets_own_noise(at_rest):
    story = await canary_at(at_rest, weight=50)
    await story.run_until(lambda: (metric(story, "speed") or {}).get("blocks", 0) >= 3)
    before = metric(story, "speed")["resolvable"]
    assert before == "5.7"
    story.edit("stay here", paused=True)
    await story.run(300)
    measured = float(metric(story, "speed")["resolvable"])
    assert measured != 5.7
    assert 1 < measured < 12
    assert metric(story, "speed")["margin"] == "6.0"


async def test_of_a_metric_that_is_not_compared_nobody_says_that_it_cannot_be_proven(at_rest):
    story = await canary_at(at_rest, weight=50)  # a longer proposal: its acceptance means something else
    story.edit("stay here", paused=True)
    await story.run(300)
    assert metric(story, "acceptance")["outcome"] == "NotComparable"
    assert "resolvable" not in metric(story, "acceptance")
    assert not [text for text in story.status.get("findings", ()) if "acceptancePoints" in text]


def test_what_an_older_operator_remembered_has_no_plan_of_pods():
    rollout = Rollout("v2", ("a", "b"), pods=(2, 3))
    assert Memory.from_json(Memory(rollout).to_json()).rollout == rollout
    text = Memory(Rollout("v2", ("a", "b"))).to_json().replace('"pods":null,', "")
    assert "pods" not in text
    assert Memory.from_json(text).rollout == Rollout("v2", ("a", "b"))
