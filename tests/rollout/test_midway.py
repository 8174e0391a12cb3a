"""What can happen to a fleet in the middle of a canary. Each test is a story with a golden transcript."""


def longer(story):
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})


async def at_weight(story, weight):
    longer(story)
    await story.run_until(lambda: story.weights.get("v2", 0) >= weight)
    await story.run_until_reason("CanaryAnalysing")


async def promoted(story, number=2):
    await story.run_until(lambda: story.stable.number == number)
    await story.run_until_reason("Stable")
    assert story.weights == {f"v{number}": 100}


async def test_a_third_revision_replaces_the_canary_and_is_held_against_stable(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 50)
    story.edit("numSpeculativeTokens 5 -> 4", speculation={"numSpeculativeTokens": 4})
    await promoted(story, 3)
    golden(story)


async def test_going_back_to_stables_spec_clears_the_canary(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 50)
    story.edit("numSpeculativeTokens 5 -> 3", speculation={"numSpeculativeTokens": 3})
    await story.run_until_reason("Stable")
    assert story.weights == {"v1": 100}
    assert [revision.number for revision in story.revisions] == [1]
    golden(story)


async def test_an_invalid_edit_leaves_the_last_valid_spec_in_force(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 20)
    story.edit("numSpeculativeTokens 5 -> -1", speculation={"numSpeculativeTokens": -1})
    await story.run_until(lambda: story.weights.get("v2", 0) >= 50)
    conditions = {item["type"]: item["status"] for item in story.status["conditions"]}
    assert conditions["ConfigValid"] == "False"
    assert conditions["Stalled"] == "True"
    assert conditions["Ready"] == "True"
    story.edit("numSpeculativeTokens -1 -> 5", speculation={"numSpeculativeTokens": 5})
    await promoted(story)
    golden(story)


async def test_more_replicas_join_a_canary(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 20)
    story.edit("replicas 4 -> 6", replicas=6)
    await promoted(story)
    assert story.revision(2).ready == 6
    golden(story)


async def test_zero_replicas_in_the_middle_stop_everything_and_four_go_on(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 20)
    story.edit("replicas 4 -> 0", replicas=0)
    await story.run(120)
    assert story.reason == "ScaledToZero"
    assert story.fleet.pods() == []
    story.edit("replicas 0 -> 4", replicas=4)
    await promoted(story)
    golden(story)


async def test_a_pause_holds_the_step_and_a_resume_goes_on(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 20)
    story.edit("paused", paused=True)
    await story.run(300)
    assert story.weights == {"v1": 80, "v2": 20}
    assert story.reason == "CanaryPaused"
    story.edit("resumed", paused=False)
    await promoted(story)
    golden(story)


async def test_guards_act_during_a_pause(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 20)
    story.edit("paused", paused=True)
    await story.run(30)
    story.behave(2, "a fifth of v2's answers are 500", errors=0.2)
    await story.run_until_reason("CanaryAborted", seconds=60)
    golden(story)


async def test_a_canary_that_starts_paused_gets_no_weight(at_rest, golden):
    story = await at_rest()
    story.edit("paused", paused=True)
    longer(story)
    await story.run(120)
    assert story.weights == {"v1": 100}
    story.edit("resumed", paused=False)
    await promoted(story)
    golden(story)


async def test_the_status_can_be_wiped(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 50)
    story.say("someone wipes the status")
    story.kube.put({key: value for key, value in story.sdd.items() if key != "status"})
    await promoted(story)
    golden(story)


async def test_without_its_evidence_a_canary_measures_afresh(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 50)
    story.say("someone deletes the ConfigMap with the evidence")
    story.kube.remove("ConfigMap", "chat", "qwen-evidence")
    await promoted(story)
    golden(story)


async def test_a_restarted_operator_goes_on_from_the_evidence(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 50)
    story.restart("the operator is killed")
    await promoted(story)
    golden(story)


async def test_traffic_stays_as_it_is_while_the_operator_is_away(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 20)
    await story.away(3600, "the operator is away for an hour")
    assert story.weights == {"v1": 80, "v2": 20}
    await promoted(story)
    golden(story)


async def test_when_stable_dies_the_canary_carries_all(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 20)
    story.behave(1, "every pod of v1 crashes", crash=True)
    for raw in story.fleet.pods(story.revision(1).name):
        story.fleet.restart(raw)
    await story.run(60)
    assert story.weights == {"v2": 100}
    story.behave(1, "v1 is well again")
    await promoted(story)
    golden(story)


async def test_a_canary_pod_that_restarts_once_loses_its_weight_and_gets_it_back(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 20)
    story.say("the container of v2's pod exits once")
    story.fleet.restart(story.fleet.pods(story.revision(2).name)[0])
    await promoted(story)
    golden(story)


async def test_a_lost_node_takes_a_canary_pod_and_nothing_is_aborted(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 50)
    story.say("a node with one pod of v2 is lost")
    story.fleet.kill(story.fleet.pods(story.revision(2).name)[0])
    await promoted(story)
    golden(story)


async def test_without_traffic_nothing_is_proven(at_rest, golden):
    story = await at_rest()
    story.say("nobody asks anything")
    story.fleet.arrivals = 0.0
    longer(story)
    await story.run(600)
    assert story.reason == "NoTraffic"
    assert story.stable.number == 1
    story.say("40 requests per second arrive")
    story.fleet.arrivals = 40.0
    await promoted(story)
    golden(story)


async def test_a_canary_in_the_dark_loses_its_weight_unlatched_and_returns(at_rest, golden):
    story = await at_rest()
    await at_weight(story, 20)
    story.behave(2, "v2's metrics cannot be reached", dark=True)
    await story.run_until_reason("MetricsUnreachable")
    await story.run(120)
    assert story.weights == {"v1": 100}
    assert not story.revision(2).aborted
    story.behave(2, "v2's metrics can be reached again")
    await promoted(story)
    golden(story)


async def test_gpus_that_are_borrowed_go_back_after_an_abort(at_rest, golden):
    story = await at_rest(gpus=4, unavailable=1)
    await at_weight(story, 50)
    story.behave(2, "v2 becomes slow", pace=3.0)
    await story.run_until_reason("CanaryAborted")
    await story.run_until(lambda: story.revision(1).ready == 4, seconds=300)
    golden(story)
