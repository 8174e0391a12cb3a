"""Where accelerators are scarce: what is said before, who lends to whom, what waits. Stories have transcripts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.plan import plan as plan_of
from specfleet.rollout.capacity import bounds_of, foreseen, in_words, steps_of
from specfleet.rollout.shape import Bounds, Shape
from specfleet.rollout.turn import Step

EIGHT = {"gpu-a": 4, "gpu-b": 4}


def longer(story, length=5):
    story.edit(f"numSpeculativeTokens -> {length}", speculation={"numSpeculativeTokens": length})


def promote(story, number=2):
    action = {"type": "Promote", "revision": story.revision(number).name, "id": f"promote {number}"}
    story.edit(f"Promote v{number}", rollout={"action": action})


def plan(story):
    return [
        (row["asked"], row["canary"], row["stable"], row["accelerators"], row["lends"])
        for row in story.status["canary"]["plan"]
    ]


async def promoted(story, number=2):
    await story.run_until(lambda: story.stable.number == number)
    await story.run_until_reason("Stable")


def spec(replicas, gpus=1, steps=(5, 25, 50), gateway=False, **rollout):
    traffic = {"gateway": {"name": "public", "namespace": "gateways"}} if gateway else {}
    return SpecDecodeDeploymentSpec.model_validate(
        {
            "replicas": replicas,
            "model": {"source": {"huggingFace": {"repo": "Qwen/Qwen3-8B"}}},
            "speculation": {"method": "none"},
            "accelerator": {"count": gpus},
            "traffic": traffic,
            "pod": {"startupSeconds": 600},
            "rollout": {"steps": [{"weight": weight} for weight in steps], **rollout},
        }
    )


@pytest.mark.parametrize(
    ("fleet", "expected"),
    [
        (
            spec(4),
            "asked 5%, reachable 20%: 1 canary + 4 stable; 25%: 1 canary + 3 stable; 50%: 2 canary + 2 stable;"
            " 100%: 4 canary + 1 stable; at most 5 amd.com/gpu (surge 1, or stable lends 1 where none is free)",
        ),
        (
            spec(4, gpus=8, steps=(5, 50), gateway=True, maxSurge=2),
            "5%: 1 canary + 4 stable; 50%: 3 canary + 3 stable; 100%: 4 canary + 2 stable;"
            " at most 48 amd.com/gpu (surge 2)",
        ),
        (
            spec(4, steps=(25,), maxSurge=0),
            "25%: 1 canary + 3 stable; 100%: 4 canary + 0 stable; at most 4 amd.com/gpu (no surge, stable lends 1)",
        ),
        (
            spec(1, steps=(25,), maxSurge=0),
            "no room for a canary beside stable: it waits for Promote; 100%: 1 canary + 0 stable; at most 1 amd.com/gpu"
            " (no surge, stable lends 1); 0 pods serve while the new one starts, which may take 600 s",
        ),
        (
            spec(20, steps=(5, 10, 20, 30, 40, 50, 60), maxSurge=1),
            "5%: 1 canary + 19 stable; 10%: 2 canary + 18 stable; 20%: 4 canary + 16 stable; 30%: 6 canary + 14 stable;"
            " ...; 60%: 12 canary + 8 stable; 100%: 20 canary + 1 stable; at most 21 amd.com/gpu (surge 1)",
        ),
    ],
)
def test_the_plan_in_words(fleet, expected):
    assert in_words(fleet, steps_of(fleet)) == expected


def test_a_cohort_takes_the_least_that_a_canary_can():
    plan = foreseen((Step(0, cohort="internal"), Step(50)), bounds_of(spec(4), borrowed=False))
    assert [(str(item.step), item.shape) for item in plan][:2] == [
        ("cohort internal", Shape(1, 4)),
        ("50%", Shape(2, 2)),
    ]
    assert plan[0].reachable(gateway=True) is None


bounds = st.builds(Bounds, st.integers(1, 30), st.integers(0, 5), st.integers(0, 5))
ascending = st.lists(st.integers(1, 99), min_size=1, max_size=6, unique=True).map(sorted)


@given(ascending, bounds)
def test_a_plan_keeps_the_bounds_and_ends_with_every_replica(weights, limits):
    plan = foreseen([Step(weight) for weight in weights], limits)
    assert plan[-1].shape.canary == limits.replicas
    for item in plan:
        assert limits.fewest <= item.serving <= limits.replicas
        assert item.shape.canary + item.shape.stable <= item.most <= limits.most
        assert item.reachable(gateway=True) in (None, int(100 * item.shape.share))


def test_without_replicas_there_is_no_plan():
    assert foreseen([Step(50)], Bounds(0, 1, 0)) == ()


async def test_of_eight_gpus_in_use_stable_lends_one(at_rest, golden):
    story = await at_rest(gpus=EIGHT, nodes=True, unavailable=1, spec={"replicas": 8})
    longer(story)
    await promoted(story)
    assert story.revision(2).ready == 8
    golden(story)


async def test_of_eight_gpus_in_use_a_busy_stable_lends_none(at_rest, golden):
    story = await at_rest(gpus=EIGHT, nodes=True, unavailable=1, spec={"replicas": 8})
    story.behave(1, "the KV caches of v1 are 80 % full", kv=0.8)
    await story.run(60)
    longer(story)
    await story.run_until_reason("WaitingForGPUs")
    await story.run(600)
    assert story.revision(1).ready == 8
    for said in ("stable cannot lend a pod: the KV cache would be 91% full", "gpu-a 0 of 4, gpu-b 0 of 4"):
        assert said in story.status["message"]
    story.say("another node comes")
    story.fleet.plug("gpu-c", 4)
    await promoted(story)
    golden(story)


async def test_where_nodes_may_not_be_read_only_the_scheduler_is_quoted(at_rest):
    story = await at_rest(gpus=EIGHT, spec={"replicas": 8, "rollout": {"maxSurge": 1}})
    longer(story)
    await story.run_until_reason("WaitingForGPUs")
    assert story.status["message"].endswith("0/2 nodes are available: 2 Insufficient amd.com/gpu.")


async def test_a_quota_that_is_used_up_is_a_want_of_gpus_and_stable_lends_one(at_rest, golden):
    """The pod is never made, so no scheduler says anything: its Deployment does."""
    story = await at_rest(unavailable=1)
    story.say("a quota of four GPUs")
    story.fleet.quota = 4
    longer(story)
    await story.run_until_reason("WaitingForGPUs")
    assert "exceeded quota: gpus" in story.status["message"]
    await promoted(story)
    assert story.revision(2).ready == 4
    golden(story)


async def test_a_webhook_that_refuses_pods_is_quoted_and_nothing_is_lent(at_rest):
    story = await at_rest()
    longer(story)
    await story.run_until(lambda: len(story.revisions) == 2 and story.revision(2).deployment is not None)
    why = 'admission webhook "policy" denied the request: image is not signed'
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": why}
    found = story.objects()
    deployments = dict(found.deployments)
    deployments[story.newest] = {**deployments[story.newest], "status": {"conditions": [failure]}}
    seen = await story.observe()
    planned = plan_of(story.sdd, replace(found, deployments=deployments), seen, story.clock.now)
    assert (planned.status["reason"], planned.status["message"]) == ("ApiError", why)
    assert not any(write.kind == "Pod" for write in planned.writes)


async def test_the_plan_is_told_before_the_first_pod_and_then_kept(at_rest):
    story = await at_rest()
    longer(story)
    seen = []
    story.kube.written.append(lambda write: seen.append((story.revision(2).wanted, story.revision(1).wanted)))
    await story.run_until(lambda: "canary" in story.status)
    assert story.revision(2).ready == 0
    assert plan(story) == [("20%", 1, 4, 5, 0), ("50%", 2, 2, 5, 0), ("100%", 4, 1, 5, 0)]
    await promoted(story)
    assert [pods for pods in ((1, 4), (2, 2), (4, 1)) if pods in seen] == [(1, 4), (2, 2), (4, 1)]
    assert max(sum(pods) for pods in seen) == 5


async def test_the_plan_follows_steps_replicas_and_what_is_borrowed(at_rest):
    story = await at_rest(gpus=4, unavailable=1)
    longer(story)
    await story.run_until_reason("CanaryDwelling")
    assert plan(story) == [("20%", 1, 3, 4, 1), ("50%", 2, 2, 4, 1), ("100%", 4, 0, 4, 1)]
    assert story.status["canary"]["plan"][0]["reachable"] == "25%"
    story.edit("one step", rollout={"steps": [{"weight": 20, "minSeconds": 600}]}, replicas=3)
    await story.run(30)
    assert plan(story) == [("20%", 1, 2, 3, 1), ("100%", 3, 0, 3, 1)]


async def test_a_step_says_since_when_it_is_reached(at_rest):
    story = await at_rest()
    longer(story)
    await story.run_until(lambda: "step" in story.status)
    assert "since" not in story.status["step"]
    await story.run_until_reason("CanaryAnalysing")
    since = story.status["step"]["since"]
    assert since == next(item["time"] for item in story.status["decisions"] if item["reason"] == "StepReached")
    story.restart("the operator is killed")
    await story.run(10)
    assert story.status["step"]["since"] == since


async def test_one_replica_without_a_free_gpu_waits_whatever_is_ordered(at_rest, golden):
    """The only pod is nobody's to lend, not even for Promote: no limit was set that allows an outage."""
    story = await at_rest(gpus=1, nodes=True, spec={"replicas": 1})
    longer(story)
    await story.run_until_reason("WaitingForGPUs")
    assert "stable cannot lend a pod: no pod would be left" in story.status["message"]
    promote(story)
    await story.run(300)
    assert story.weights == {"v1": 100}
    story.say("a second GPU comes")
    story.fleet.plug("gpu-node", 2)
    await promoted(story)
    golden(story)


@pytest.mark.parametrize("limits", [{"maxSurge": 0}, {"maxSurge": 0, "maxUnavailable": 1}])
async def test_one_replica_without_surge_waits_and_says_what_promote_would_cost(at_rest, limits):
    story = await at_rest(gpus=1, spec={"replicas": 1, "rollout": limits})
    outage = "0 pods serve while the new one starts, which may take 120 s"
    assert any(outage in finding for finding in story.status["findings"])
    longer(story)
    await story.run(300)
    assert story.weights == {"v1": 100}
    assert story.reason == "WaitingForPods"
    assert outage in story.status["message"]
    assert plan(story) == [("100%", 1, 0, 1, 1)]
    started = next(item for item in story.status["decisions"] if item["reason"] == "CanaryStarted")
    assert outage in started["message"]
    assert story.fleet.lost == 0


async def test_promote_of_one_replica_without_surge_is_down_for_one_start_and_no_longer(at_rest, golden):
    story = await at_rest(gpus=1, spec={"replicas": 1, "rollout": {"maxSurge": 0, "maxUnavailable": 1}})
    longer(story)
    await story.run_until_reason("WaitingForPods")
    promote(story)
    await story.run_until(lambda: not story.weights)
    gone = story.clock.now
    await story.run_until(lambda: bool(story.weights), seconds=120)
    assert story.clock.now - gone < 60  # drained, gone, started and probed
    await promoted(story)
    announced(story)
    golden(story)


async def test_promote_of_one_replica_that_turns_out_bad_brings_the_old_one_back(at_rest):
    story = await at_rest(gpus=1, spec={"replicas": 1, "rollout": {"maxSurge": 0, "maxUnavailable": 1}})
    story.behave(2, "v2 will crash", crash=True)
    longer(story)
    await story.run_until_reason("WaitingForPods")
    promote(story)
    await story.run_until_reason("CanaryAborted", "StableUnavailable")
    await story.run_until(lambda: story.weights == {"v1": 100})
    await story.run_until_reason("CanaryAborted")
    assert story.revision(2).aborted.startswith("CanaryDead")


def announced(story):
    """The outage is what the user was told of: nothing else is wrong."""
    assert set(story.watchdog.wrongs) <= {"only 0 of at least 1 pods are selected"}
    story.watchdog.wrongs.clear()
    story.fleet.lost = 0


async def test_a_node_without_its_plugin_is_named_and_stable_lends_it_nothing(at_rest, golden):
    """A pod that leaves such a node makes no room there: what stable lent would be lost to everybody."""
    story = await at_rest(gpus={"gpu-a": 4}, nodes=True, unavailable=1)
    story.say("the device plugin of gpu-a stops")
    story.fleet.plug("gpu-a", 0)
    longer(story)
    await story.run_until_reason("WaitingForGPUs")
    await story.run(900)
    assert "node gpu-a has lost its amd.com/gpu: 4 in use, 0 allocatable" in story.status["message"]
    assert story.revision(1).ready == 4
    assert story.weights == {"v1": 100}
    assert story.revision(2).aborted == ""
    story.say("the plugin of gpu-a runs again")
    story.fleet.plug("gpu-a", 4)
    await promoted(story)
    golden(story)


async def test_a_canary_whose_node_loses_its_plugin_keeps_what_it_has_and_goes_on_when_it_returns(at_rest, golden):
    story = await at_rest(gpus={"gpu-a": 5}, nodes=True, spec={"rollout": {"maxSurge": 1}})
    longer(story)
    await story.run_until_reason("CanaryAnalysing")
    story.say("the device plugin of gpu-a stops")
    story.fleet.plug("gpu-a", 0)
    await story.run_until_reason("WaitingForGPUs")
    await story.run(600)
    assert "node gpu-a has lost its amd.com/gpu: 5 in use, 0 allocatable" in story.status["message"]
    assert story.weights == {"v1": 80, "v2": 20}
    assert story.revision(2).aborted == ""
    story.say("the plugin of gpu-a runs again")
    story.fleet.plug("gpu-a", 5)
    await promoted(story)
    golden(story)


async def test_growing_load_in_the_middle_of_a_step_is_stables_as_the_plan_for_so_many_replicas_says(at_rest, golden):
    steps = [{"weight": 33, "minSeconds": 600}]
    story = await at_rest(spec={"replicas": 2, "rollout": {"steps": steps}})
    longer(story)
    await story.run_until_reason("CanaryDwelling")
    assert (story.revision(2).ready, story.revision(1).ready) == (1, 2)
    story.edit("replicas 2 -> 4", replicas=4)
    await story.run(120)
    assert (story.revision(2).ready, story.revision(1).ready) == (2, 3)
    assert plan(story)[0] == ("33%", 2, 3, 5, 0)
    golden(story)


@pytest.mark.parametrize("paused", [False, True])
async def test_more_replicas_are_more_pods_at_once_however_few_may_serve(at_rest, paused):
    steps = [{"weight": 50, "minSeconds": 600}]
    limits = {"maxSurge": 0, "maxUnavailable": "50%"}
    story = await at_rest(unavailable=4, spec={"rollout": {"steps": steps, **limits}})
    longer(story)
    await story.run_until_reason("CanaryDwelling")
    assert (story.revision(2).ready, story.revision(1).ready) == (2, 2)
    story.edit("replicas 4 -> 8", replicas=8, paused=paused)
    await story.run(120)
    # In a pause the canary's part does not rise: what is new is stable's.
    assert (story.revision(2).ready, story.revision(1).ready) == ((2, 6) if paused else (4, 4))


@pytest.mark.parametrize("unavailable", [0, "10%"])
async def test_stable_lends_nothing_where_every_pod_is_to_serve(at_rest, unavailable):
    story = await at_rest(gpus=4, unavailable=0, spec={"rollout": {"maxUnavailable": unavailable}})
    longer(story)
    await story.run_until_reason("WaitingForGPUs")
    await story.run(600)
    assert story.revision(1).ready == 4
    assert story.reason == "WaitingForGPUs"
    assert f"cannot lend a pod: spec.rollout.maxUnavailable is {unavailable}" in story.status["message"]
    started = next(item for item in story.status["decisions"] if item["reason"] == "CanaryStarted")
    assert "lends" not in started["message"]


@pytest.mark.parametrize(("limits", "gpus"), [({"maxSurge": 0, "maxUnavailable": 1}, None), ({}, 2)])
async def test_scaled_to_one_without_room_for_a_canary_stable_keeps_the_pod(at_rest, limits, gpus):
    story = await at_rest(gpus=gpus, unavailable=1, spec={"replicas": 2, "rollout": limits})
    longer(story)
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    story.edit("replicas -> 1", replicas=1)
    await story.run_until(lambda: story.weights == {"v1": 100} and story.revision(2).wanted == 0)
    await story.run(120)
    assert (story.revision(1).ready, len(story.revision(2).pods)) == (1, 0)
    assert story.fleet.lost == 0


async def test_what_stable_can_carry_is_what_its_own_pods_were_started_with(at_rest):
    """A canary that takes more requests at a time makes no pod of stable take more."""
    story = await at_rest(gpus=4, unavailable=1, spec={"engine": {"maxNumSeqs": 30}})
    await story.run(60)
    story.edit("maxNumSeqs -> 300", engine={"maxNumSeqs": 300}, speculation={"numSpeculativeTokens": 5})
    await story.run_until_reason("WaitingForGPUs")
    await story.run(300)
    assert "stable cannot lend a pod" in story.status["message"]
    assert story.revision(1).ready == 4


async def test_an_undo_has_the_time_to_start_that_the_revision_was_made_with(at_rest):
    story = await at_rest(spec={"pod": {"startupSeconds": 3600}})
    story.edit("a hasty spec", pod={"startupSeconds": 300}, speculation={"numSpeculativeTokens": 5})
    await promoted(story)
    story.behave(1, "v1 takes a thousand seconds to start", start=1000.0)
    action = {"type": "Undo", "revision": story.revision(2).name, "id": "back"}
    story.edit("Undo v2", rollout={"action": action})
    await story.run_until(lambda: story.stable.number == 1, seconds=5000)
    assert story.revision(1).ready == 4
