"""What once went wrong, or nearly: each is a story that must end well."""

from dataclasses import replace

import pytest

from arms import arm, raw_pod
from specfleet.api import names
from specfleet.plan import plan
from specfleet.rollout.moves import Drain, Fleet, Scale, moves
from specfleet.rollout.shape import Bounds


def longer(story, length=5):
    story.edit(f"numSpeculativeTokens -> {length}", speculation={"numSpeculativeTokens": length})


async def at_weight(story, weight):
    longer(story)
    await story.run_until(lambda: story.weights.get("v2", 0) >= weight)


def order(story, what, number, id="1"):
    action = {"type": what, "revision": story.revision(number).name, "id": id}
    story.edit(f"{what} v{number}", rollout={"action": action})


async def test_fewer_replicas_during_a_pause_leave_stable_its_share(at_rest):
    story = await at_rest()
    await at_weight(story, 50)
    story.edit("paused", paused=True)
    await story.run(20)
    story.edit("replicas 4 -> 2", replicas=2)
    await story.run(120)
    assert story.weights == {"v1": 50, "v2": 50}
    story.edit("resumed", paused=False)
    await story.run_until(lambda: story.stable.number == 2)
    assert story.watchdog.wrongs == []


async def test_fewer_replicas_while_a_canary_is_dark_leave_stable_in_place(at_rest):
    story = await at_rest()
    await at_weight(story, 50)
    story.behave(2, "metrics of v2 cannot be read", dark=True)
    await story.run(10)
    story.edit("replicas 4 -> 2", replicas=2)
    await story.run(120)
    assert story.revision(1).ready >= 1
    story.behave(2, "they can be read again", dark=False)
    await story.run_until(lambda: story.stable.number == 2)


@pytest.mark.parametrize(("wanted_now", "gone"), [(4, 1), (3, 0)])
def test_an_unready_pod_is_free_to_go_only_once(wanted_now, gone):
    pods = [*(raw_pod("v2", f"v2-{index}") for index in range(3)), raw_pod("v2", "v2-3", ready=False)]
    v1, v2 = arm("v1", 1, raw_pod("v1", "v1-0")), arm("v2", wanted_now, *pods)
    carriers = frozenset({"v1", "v2"})
    found = moves(Fleet((v1, v2), {"v1": 1, "v2": 0}, carriers, Bounds(4, 1, 0), lambda pod: False))
    assert sum(isinstance(move, Scale) for move in found) == gone


def test_a_pod_drained_later_never_costs_the_same_as_one_that_still_drains():
    pods = [raw_pod("v1", f"v1-{index}") for index in range(3)]
    first = raw_pod("v1", "v1-3", serving=False)
    first["metadata"]["annotations"] = {names.DELETION_COST: "-999999"}
    v1 = arm("v1", 4, *pods, first)
    found = moves(Fleet((v1,), {"v1": 2}, frozenset({"v1"}), Bounds(2, 0, 0), lambda pod: False))
    assert [move.cost for move in found if isinstance(move, Drain)] == [-999998]


async def test_an_old_canary_pod_that_loses_its_readiness_is_not_late(at_rest):
    story = await at_rest()
    await at_weight(story, 20)
    story.edit("paused", paused=True)
    await story.run(500)
    raw = story.fleet.pods(story.revision(2).name)[0]
    conditions = [
        {**item, "status": "False"} if item["type"] == "Ready" else item for item in raw["status"]["conditions"]
    ]
    story.kube.put({**raw, "status": {**raw["status"], "conditions": conditions}})
    await story.run(30)
    assert story.revision(2).aborted == ""


async def test_waiting_for_a_gpu_is_not_being_late(at_rest):
    story = await at_rest(gpus=4, spec={"rollout": {"maxSurge": 1}})
    longer(story)
    await story.run(600)
    story.fleet.plug("gpu-node", 5)
    await story.run_until(lambda: story.stable.number == 2, seconds=3000)


async def test_a_pod_that_failed_does_not_stand_in_the_way(at_rest):
    story = await at_rest()
    raw = story.fleet.pods()[0]
    life = story.fleet._life(raw)
    life.ready_at = life.crash_at = life.gone_at = None
    story.kube.put({**raw, "status": {"phase": "Failed", "reason": "Evicted", "conditions": []}})
    longer(story)
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    longer(story, 4)
    await story.run_until(lambda: story.stable.number == 3)


@pytest.mark.parametrize(("what", "number"), [("Undo", 2), ("Retry", 2)])
async def test_an_order_that_comes_too_soon_is_answered_and_never_acts(at_rest, what, number):
    story = await at_rest()
    await at_weight(story, 20)
    order(story, what, number)
    await story.run(10)
    assert story.status["lastHandledAction"]["result"].startswith("Ignored")
    await story.run_until(lambda: story.stable.number == 2)
    await story.run(120)
    assert (story.stable.number, story.revision(2).aborted) == (2, "")


async def test_an_order_that_comes_too_late_does_not_promote_the_next_time(at_rest):
    story = await at_rest(spec={"rollout": {"analysis": {"margins": {"speedPercent": 15}}}})
    longer(story)
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    order(story, "Promote", 2, "late")
    await story.run(20)
    longer(story, 3)
    await story.run_until(lambda: story.stable.number == 1)
    await story.run_until_reason("Stable")
    story.behave(2, pace=1.5)
    longer(story)
    await story.run_until_reason("CanaryAborted")
    assert story.revision(2).aborted.startswith("CanaryRegressed")


async def test_a_namespace_made_anew_is_served_again(at_rest):
    story = await at_rest()
    story.kube.terminating.add("chat")
    story.kube.remove("Service", "chat", "qwen")
    await story.run(10)
    story.kube.terminating.clear()
    await story.run(200)
    assert story.kube.find("Service", "chat", "qwen") is not None


@pytest.mark.parametrize(("replicas", "most"), [(2, 67), (4, 80)])
async def test_a_step_that_the_pods_cannot_make_goes_as_far_as_they_can(at_rest, replicas, most):
    steps = [{"weight": 25, "minSeconds": 5}, {"weight": 90, "minSeconds": 5}]
    story = await at_rest(spec={"replicas": replicas, "rollout": {"steps": steps}})
    longer(story)
    await story.run_until(lambda: story.weights.get("v2", 0) >= most)
    await story.run_until(lambda: story.stable.number == 2)


async def test_without_the_record_of_stable_the_service_stays_where_its_pods_are(at_rest):
    story = await at_rest()
    longer(story)
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    gone = story.revision(2).name
    story.kube.remove("ControllerRevision", "chat", gone)
    await story.run(3)
    selector = story.kube.find("Service", "chat", "qwen")["spec"]["selector"]
    assert selector.get(names.REVISION, gone) == gone


async def test_an_object_that_lost_our_label_is_given_it_back(at_rest):
    story = await at_rest()
    live = story.kube.find("Service", "chat", "qwen")
    labels = {key: value for key, value in live["metadata"]["labels"].items() if key != names.DEPLOYMENT}
    story.kube.put({**live, "metadata": {**live["metadata"], "labels": labels}})
    story.restart("and so it starts without knowing of the Service")
    calls = len(story.kube.calls)
    await story.run(120)
    assert names.DEPLOYMENT in story.kube.find("Service", "chat", "qwen")["metadata"]["labels"]
    assert len(story.kube.calls) - calls < 40


async def test_the_pass_that_narrows_the_service_takes_no_pod_of_stable_for_those_of_the_canary(at_rest):
    """The canary's pods counted as capacity in the very pass in which the Service stopped selecting them."""
    story = await at_rest()
    await at_weight(story, 50)
    story.edit("replicas 4 -> 2, and nobody can read v2's metrics", replicas=2)
    seen = await story.observe()
    dark = replace(seen.canary, unreachable="time-out", unreachable_for=999.0)
    found = plan(story.sdd, story.objects(), replace(seen, canary=dark), story.clock.now).writes
    assert any(write.kind == "Service" and write.why.endswith(f"selects {story.stable.name}") for write in found)
    assert not any(write.kind == "Pod" and write.name.startswith(story.stable.name) for write in found)
    assert any(write.kind == "Pod" and write.name.startswith(story.newest) for write in found)


async def test_what_stops_a_canarys_weight_is_said_also_while_its_pods_change(at_rest):
    """Its Service's lost endpoints were hidden behind the count of pods that were still to come."""
    gateway = {"gateway": {"name": "public", "namespace": "gateways"}}
    story = await at_rest(route="qwen", spec={"traffic": gateway})
    await at_weight(story, 20)
    await story.run(5)
    seen = await story.observe()
    objects = story.objects()
    away = [part for part in objects.endpoint_slices if not part["metadata"]["name"].startswith(story.newest)]
    found = plan(
        {**story.sdd, "spec": {**story.sdd["spec"], "replicas": 8}},
        replace(objects, endpoint_slices=away),
        seen,
        story.clock.now,
    )
    assert found.status["reason"] == "EndpointsNotReady"
