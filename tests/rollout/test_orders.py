"""What people order: promote and abort, honoured once and only where they are meant. Golden transcripts."""


def longer(story):
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})


async def at_weight(story, weight):
    longer(story)
    await story.run_until(lambda: story.weights.get("v2", 0) >= weight)
    await story.run_until_reason("CanaryAnalysing")


def order(story, what, number=2, id="1", revision=""):
    name = revision or story.revision(number).name
    story.edit(f"{what} v{number}, id {id}", rollout={"action": {"type": what, "revision": name, "id": id}})


async def test_promote_skips_dwell_and_proof_but_not_capacity(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 20)
    order(story, "Promote")
    await story.run_until(lambda: story.stable.number == 2)
    assert story.revision(2).ready == 4
    await story.run_until_reason("Stable")
    assert story.status["lastHandledAction"] == {"id": "1", "type": "Promote", "result": "Honoured"}
    golden(story)


async def test_promote_works_while_paused(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 20)
    story.edit("paused", paused=True)
    await story.run(30)
    order(story, "Promote")
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    golden(story)


async def test_promote_works_while_stable_is_dead(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 20)
    story.behave(1, "every pod of v1 crashes", crash=True)
    for raw in story.fleet.pods(story.revision(1).name):
        story.fleet.restart(raw)
    await story.run(30)
    order(story, "Promote")
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    golden(story)


async def test_promote_does_not_save_a_canary_that_fails_its_guards(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 20)
    order(story, "Promote")
    await story.run(3)
    story.behave(2, "a fifth of v2's answers are 500", errors=0.2)
    await story.run_until_reason("CanaryAborted")
    assert story.stable.number == 1
    golden(story)


async def test_abort_ends_the_canary_and_latches(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 50)
    order(story, "Abort")
    await story.run_until_reason("CanaryAborted")
    await story.run_until(lambda: not story.revision(2).alive)
    assert "UserAborted" in story.revision(2).aborted
    assert story.weights == {"v1": 100}
    golden(story)


async def test_an_abort_order_for_a_promoted_revision_does_nothing(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 20)
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    order(story, "Abort")
    await story.run(60)
    assert story.weights == {"v2": 100}
    assert story.revision(2).ready == 4
    assert "Ignored" in story.status["lastHandledAction"]["result"]
    golden(story)


async def test_orders_for_other_revisions_and_orders_that_were_there_before_are_ignored(at_rest, golden):
    story = await at_rest()
    order(story, "Promote", 9, revision="qwen-zzzzzzzz")
    await at_weight(story, 20)
    assert story.stable.number == 1
    name = story.revision(2).name
    story.edit("numSpeculativeTokens 5 -> 3", speculation={"numSpeculativeTokens": 3})
    await story.run_until_reason("Stable")
    order(story, "Promote", 2, "stale", name)
    longer(story)
    await story.run_until(lambda: story.weights.get("v2", 0) >= 20)
    assert story.reason != "CanaryPromoting"
    golden(story)
