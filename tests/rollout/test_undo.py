"""The way back: undo and retry as people order them, and the return that a guard orders. Golden transcripts."""

import pytest


def longer(story):
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})


def order(story, what, number, id="1"):
    name = story.revision(number).name
    story.edit(f"{what} v{number}, id {id}", rollout={"action": {"type": what, "revision": name, "id": id}})


async def promoted(story):
    longer(story)
    await story.run_until(lambda: story.stable.number == 2)


async def test_undo_returns_to_the_revision_before_without_steps(at_rest, golden):
    story = await at_rest()
    await promoted(story)
    await story.run_until_reason("Stable")
    story.chapter()
    order(story, "Undo", 2)
    await story.run_until(lambda: story.stable.number == 1)
    await story.run_until(lambda: not story.revision(2).alive)
    assert story.weights == {"v1": 100}
    assert story.reason == "CanaryAborted"
    assert story.revision(2).aborted == "Undone: Undo was asked for"
    assert story.status["lastHandledAction"]["result"] == "Honoured"
    golden(story)


async def test_what_was_undone_may_be_retried_through_all_its_steps(at_rest, golden):
    story = await at_rest()
    await promoted(story)
    await story.run_until_reason("Stable")
    order(story, "Undo", 2)
    await story.run_until(lambda: story.stable.number == 1 and not story.revision(2).alive)
    story.chapter()
    order(story, "Retry", 2, id="2")
    await story.run_until(lambda: story.weights.get("v2", 0) == 20)
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    golden(story)


async def test_retry_lifts_an_abort(at_rest, golden):
    story = await at_rest()
    story.behave(2, "v2 answers garbage", garbage=True)
    longer(story)
    await story.run_until_reason("CanaryAborted")
    await story.run_until(lambda: not story.revision(2).alive)
    story.behave(2, "v2 is mended", garbage=False)
    order(story, "Retry", 2)
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    golden(story)


async def test_a_guard_that_fails_while_the_old_pods_are_kept_returns_to_them(at_rest, golden):
    story = await at_rest()
    await promoted(story)
    await story.run_until_reason("RetainingOld")
    story.chapter()
    story.behave(2, "a fifth of v2's answers are 500", errors=0.2)
    await story.run_until(lambda: story.stable.number == 1)
    await story.run_until(lambda: not story.revision(2).alive)
    assert story.revision(2).aborted.startswith("CanaryErroring")
    assert story.weights == {"v1": 100}
    golden(story)


async def test_an_edit_during_an_undo_wins(at_rest, golden):
    story = await at_rest()
    await promoted(story)
    await story.run_until_reason("Stable")
    order(story, "Undo", 2)
    await story.run(10)
    story.edit("numSpeculativeTokens 5 -> 4", speculation={"numSpeculativeTokens": 4})
    await story.run_until(lambda: story.stable.number == 3)
    await story.run_until_reason("Stable")
    golden(story)


@pytest.mark.parametrize(
    ("what", "number", "says"),
    [
        ("Undo", 1, "UndoUnavailable: no earlier promoted revision is kept"),
        ("Retry", 1, "Ignored: qwen"),
    ],
)
async def test_an_order_that_has_nothing_to_act_on_is_answered_and_changes_nothing(at_rest, what, number, says):
    story = await at_rest()
    before = story.outcome()
    order(story, what, number)
    await story.run(30)
    assert story.status["lastHandledAction"]["result"].startswith(says)
    assert story.reason == "Stable"
    assert story.outcome()["stable"] == before["stable"]
    assert story.watchdog.wrongs == []
