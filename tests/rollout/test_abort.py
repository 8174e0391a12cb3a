"""A canary that is bad: how it is found out, and how it leaves. Each test is a story with a golden transcript."""

from specfleet.judgement.guards import STUCK_SECONDS


def longer(story):
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})


async def at_weight(story, weight):
    await story.run_until(lambda: story.weights.get("v2", 0) >= weight)
    await story.run_until_reason("CanaryAnalysing")


async def aborted(story):
    await story.run_until_reason("CanaryAborted")
    await story.run_until(lambda: not story.revision(2).alive)
    await story.run(60)
    assert story.weights == {"v1": 100}
    assert story.revision(1).ready == story.sdd["spec"]["replicas"]


async def test_a_drafter_that_nothing_accepts_is_aborted_before_its_first_weight(at_rest, golden):
    story = await at_rest()
    story.behave(2, "the new drafter's tokens are never accepted", accept=0.0)
    longer(story)
    await aborted(story)
    assert "CanaryNotAccepting" in story.revision(2).aborted
    assert "every revision" not in story.text()
    golden(story)


async def test_a_canary_that_answers_garbage_is_aborted_before_its_first_weight(at_rest, golden):
    story = await at_rest()
    story.behave(2, "the new revision answers garbage", garbage=True)
    longer(story)
    await aborted(story)
    assert "CanaryIncorrect" in story.revision(2).aborted
    assert "every revision" not in story.text()
    golden(story)


async def test_a_collapse_of_acceptance_under_traffic_aborts(at_rest, golden):
    story = await at_rest()
    longer(story)
    await at_weight(story, 20)
    story.behave(2, "acceptance of v2 collapses", accept=0.03)
    await aborted(story)
    assert "CanaryNotAccepting" in story.revision(2).aborted
    golden(story)


async def test_a_canary_that_stands_still_leaves_half_a_minute_later(at_rest, golden):
    story = await at_rest()
    longer(story)
    await at_weight(story, 20)
    story.behave(2, "the engine of v2 stands still, and its server says that it is healthy", hang=True)
    stood = story.clock.now
    await story.run_until(lambda: story.weights == {"v1": 100}, seconds=120)
    assert STUCK_SECONDS <= story.clock.now - stood <= STUCK_SECONDS + 2 * 5 + 1
    await aborted(story)
    assert "CanaryStuck" in story.revision(2).aborted
    golden(story)


async def test_at_half_of_the_pods_it_leaves_at_once_where_stable_can_carry_the_load(at_rest, golden):
    story = await at_rest()
    longer(story)
    await at_weight(story, 50)
    story.behave(2, "acceptance of v2 collapses", accept=0.03)
    collapsed = story.clock.now
    await story.run_until(lambda: story.weights == {"v1": 100}, seconds=60)
    assert story.clock.now - collapsed <= 5 + 1 + 1  # a scrape that is suspicious, and another a second later
    await story.run_until(lambda: not story.revision(2).alive)
    golden(story)


async def test_with_full_caches_it_leaves_as_stable_grows_back(at_rest, golden):
    story = await at_rest()
    story.behave(1, "the KV caches are 70 % full", kv=0.7)
    story.behave(2, kv=0.7)
    longer(story)
    await at_weight(story, 50)
    story.behave(2, "acceptance of v2 collapses", accept=0.03, kv=0.7)
    await story.run_until(lambda: not story.revision(2).alive)
    golden(story)


async def test_a_slower_canary_is_found_by_its_interval(at_rest, golden):
    story = await at_rest()
    story.behave(2, "steps of the new revision take half as long again", pace=1.5)
    longer(story)
    await aborted(story)
    assert "CanaryRegressed" in story.revision(2).aborted
    golden(story)


async def test_a_canary_that_fails_requests_leaves_in_that_pass(at_rest, golden):
    story = await at_rest()
    longer(story)
    await at_weight(story, 50)
    story.behave(2, "a fifth of v2's answers are 500", errors=0.2)
    await aborted(story)
    assert "CanaryErroring" in story.revision(2).aborted
    golden(story)


async def test_a_canary_that_crashes_on_load_never_serves(at_rest, golden):
    story = await at_rest()
    story.behave(2, "the new revision crashes while it loads", crash=True)
    longer(story)
    await aborted(story)
    assert "CanaryDead" in story.revision(2).aborted
    assert "every revision" not in story.text()
    golden(story)


async def test_a_canary_that_never_gets_ready_runs_out_of_time(at_rest, golden):
    story = await at_rest()
    story.behave(2, "the new revision takes an hour to load", start=3600.0)
    longer(story)
    await aborted(story)
    assert "ProgressDeadlineExceeded" in story.revision(2).aborted
    golden(story)


async def test_a_canary_whose_image_takes_minutes_to_pull_is_not_late(at_rest):
    """The startup probe counts from the container's start, after the pull; so does the user's budget, of 120 s here."""
    story = await at_rest()
    story.behave(2, "five minutes of pull, two of load", start=420.0)
    longer(story)
    await story.run_until(lambda: story.weights.get("v2", 0) > 0, seconds=600)
    assert not story.revision(2).aborted


async def test_an_abort_latches_until_the_spec_changes(at_rest, golden):
    story = await at_rest()
    story.behave(2, "the new revision answers garbage", garbage=True)
    longer(story)
    await aborted(story)
    story.edit("a label is not a new revision", rollout={"retainSeconds": 30})
    await story.run(60)
    assert story.reason == "CanaryAborted"
    story.edit("numSpeculativeTokens 5 -> 4", speculation={"numSpeculativeTokens": 4})
    await story.run_until(lambda: story.stable.number == 3)
    await story.run_until_reason("Stable")
    golden(story)


async def test_going_back_after_an_abort_and_forward_again_tries_again(at_rest, golden):
    story = await at_rest()
    story.behave(2, "the new revision answers garbage", garbage=True)
    longer(story)
    await aborted(story)
    story.edit("numSpeculativeTokens 5 -> 3", speculation={"numSpeculativeTokens": 3})
    await story.run_until_reason("Stable")
    story.behave(2, "the drafter is mended under the same name")
    longer(story)
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    golden(story)
