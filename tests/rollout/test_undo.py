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


async def test_a_crash_under_full_load_while_the_old_pods_are_kept_returns_to_them(at_rest, golden):
    story = await at_rest()
    await promoted(story)
    await story.run_until_reason("RetainingOld")
    story.chapter()
    story.behave(2, "v2 crashes under full load", crash=True)
    for raw in story.fleet.pods(story.revision(2).name):
        story.fleet.restart(raw)
    await story.run_until(lambda: story.stable.number == 1)
    await story.run_until(lambda: not story.revision(2).alive)
    assert story.revision(2).aborted.startswith("CanaryDead")
    assert story.weights == {"v1": 100}
    golden(story)


async def test_what_stable_suffered_too_does_not_bring_it_back(at_rest):
    story = await at_rest()
    story.behave(1, accept=0.05, errors=0.1)
    story.behave(2, accept=0.06, errors=0.1)
    await promoted(story)
    await story.run(300)
    assert (story.stable.number, story.revision(2).aborted) == (2, "")


async def test_an_undo_is_not_stopped_by_speed(at_rest):
    story = await at_rest()
    story.behave(1, pace=1.4)
    await promoted(story)
    await story.run_until_reason("Stable")
    order(story, "Undo", 2)
    await story.run_until(lambda: story.stable.number == 1)
    await story.run(120)
    assert (story.weights, story.revision(1).aborted) == ({"v1": 100}, "")


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
