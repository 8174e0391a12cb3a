"""A canary that is good: how it comes to carry everything. Each test is a story with a golden transcript."""

from story import Story


async def test_the_first_revision_serves_once_its_pods_are_ready_and_probed(golden):
    story = Story()
    await story.run_until_reason("Stable")
    assert story.weights == {"v1": 100}
    golden(story)


async def test_a_longer_proposal_is_promoted_through_20_and_50_percent(at_rest, golden):
    story = await at_rest()
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.weights.get("v2", 0) >= 50)
    assert story.stable.number == 1
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    assert story.weights == {"v2": 100}
    golden(story)


async def test_one_replica_surges_one_pod(at_rest, golden):
    story = await at_rest(spec={"replicas": 1})
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    golden(story)


async def test_without_surge_one_pod_of_stable_makes_room(at_rest, golden):
    story = await at_rest(spec={"rollout": {"maxSurge": 0, "maxUnavailable": 1}}, surge=0, unavailable=1)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    golden(story)


async def test_scarce_gpus_are_borrowed_from_stable(at_rest, golden):
    story = await at_rest(gpus=4, unavailable=1)
    story.edit("numSpeculativeTokens 3 -> 5; all four GPUs are taken", speculation={"numSpeculativeTokens": 5})
    await story.run_until_reason("WaitingForGPUs")
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    golden(story)


async def test_a_stable_that_needs_all_its_pods_lends_none(at_rest, golden):
    story = await at_rest(gpus=4, unavailable=1)
    story.behave(1, "the KV caches of v1 are 70 % full", kv=0.7)
    await story.run(60)
    story.edit("numSpeculativeTokens 3 -> 5; all four GPUs are taken", speculation={"numSpeculativeTokens": 5})
    await story.run_until_reason("WaitingForGPUs")
    await story.run(300)
    assert story.revision(1).ready == 4
    story.behave(1, "the load of v1 falls")
    await story.run_until(lambda: story.stable.number == 2)
    golden(story)


async def test_the_old_revision_keeps_its_surge_for_retain_seconds(at_rest, golden):
    story = await at_rest(spec={"rollout": {"retainSeconds": 300}})
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until_reason("RetainingOld")
    await story.run(250)
    assert story.revision(1).ready == 1
    await story.run_until_reason("Stable")
    assert not story.revision(1).alive
    golden(story)


async def test_promoted_revisions_beyond_the_history_limit_are_forgotten(at_rest, golden):
    story = await at_rest(spec={"revisionHistoryLimit": 1, "rollout": {"retainSeconds": 1}})
    for length in (4, 5):
        story.edit(f"numSpeculativeTokens {length}", speculation={"numSpeculativeTokens": length})
        await story.run_until_reason("CanaryAnalysing")
        await story.run_until_reason("Stable")
    assert [revision.number for revision in story.revisions] == [2, 3]
    golden(story)
