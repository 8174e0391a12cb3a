"""What once went wrong behind a gateway, or nearly: each is a story that must end well, with no pod too few for its
share at any write of the operator, and no request lost."""

import pytest

from fake_gateway import backend, user_route
from route_watch import RouteWatch
from watchdog import STRANGER

GATEWAY = {"gateway": {"name": "public", "namespace": "gateways"}}
STEPS = [{"weight": 5, "minSeconds": 10}, {"weight": 50, "minSeconds": 10}]
CHAT = {"name": "chat", "backendRefs": [backend("qwen", 1)]}


@pytest.fixture
def watched(at_rest):
    """Makes a fleet at rest behind a gateway, by the user's own route where `rules` are given, that is watched."""

    async def make(*rules, room=(1, 0), replicas=4, steps=STEPS):
        surge, unavailable = room
        traffic = {"route": {"name": "mine", "rule": "chat"}} if rules else GATEWAY
        rollout = {"steps": steps, "maxSurge": surge, "maxUnavailable": unavailable}
        story = await at_rest(
            surge=surge,
            unavailable=unavailable,
            route="mine" if rules else "qwen",
            before=[user_route("mine", list(rules))] if rules else [],
            spec={"replicas": replicas, "traffic": traffic, "rollout": rollout},
        )
        watch = RouteWatch(story.kube, story.watchdog, story.fleet.gateway)
        story.fleet.pardons = watch.pardons
        return story

    return make


def unhurt(story):
    assert story.watchdog.wrongs == [], story.text()
    assert story.fleet.lost == 0, story.text()


def route(story):
    return story.kube.find("HTTPRoute", "chat", story.route)


def backends(story):
    return {item["name"]: item["weight"] for item in route(story)["spec"]["rules"][-1]["backendRefs"]}


def rewrite(story, references, who=STRANGER):
    """Somebody else writes the references of the last rule."""
    story.say(f"{who} rewrites the weights")
    story.watchdog.excuse()
    live = route(story)
    *others, rule = live["spec"]["rules"]
    rules = [*others, {**rule, "backendRefs": references}]
    story.kube.managed({**live, "spec": {**live["spec"], "rules": rules}}, who)


def longer(story, length=5):
    story.edit(f"numSpeculativeTokens -> {length}", speculation={"numSpeculativeTokens": length})


def order(story, what, number):
    action = {"type": what, "revision": story.revision(number).name, "id": f"{what} {number}"}
    story.edit(f"{what} v{number}", rollout={"action": action})


async def at_weight(story, weight):
    longer(story)
    await story.run_until(lambda: story.weights.get("v2", 0) >= weight)


def at_writes(story, revision):
    """The shares of a revision after each write of the route from now on."""
    seen = []

    def written(write):
        if write.kind == "HTTPRoute":
            seen.append(story.weights.get(revision, 0))

    story.kube.written.append(written)
    return seen


@pytest.mark.parametrize("paused", [False, True])
async def test_a_third_revision_at_half_of_the_pods_gets_nothing_and_stable_no_more_than_it_can_carry(watched, paused):
    """argo-rollouts#3020, #3077, #3372: a revert or a third revision sent everything to a shrunken stable."""
    story = await watched()
    await at_weight(story, 50)
    story.edit("paused" if paused else "on", paused=paused)
    longer(story, 7)
    third = at_writes(story, "v3")
    await story.run_until(lambda: story.weights == {"v1": 100})
    assert set(third) == {0}
    assert story.revision(1).ready >= 3
    unhurt(story)


async def test_going_back_at_half_of_the_pods_waits_for_stables_pods(watched):
    """argo-rollouts#3020, #3077, #3372, with the user's own route: it was divided in halves whatever could carry."""
    story = await watched(CHAT, replicas=3, steps=[{"weight": 34, "minSeconds": 600}])
    await at_weight(story, 33)
    longer(story, 3)
    await story.run_until(lambda: not story.revision(2).alive)
    assert backends(story) == {"qwen": 1}
    unhurt(story)


async def test_without_a_surge_the_requests_of_stables_last_pod_go_before_it(watched):
    """argo-rollouts#2235: the old pods were gone before the switch."""
    story = await watched(room=(0, 1))
    await at_weight(story, 5)
    order(story, "Promote", 2)
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    unhurt(story)


@pytest.mark.parametrize("replicas", [2, 4])
async def test_without_a_surge_callers_inside_the_cluster_always_find_somebody(watched, replicas):
    """`Service qwen` stayed with stable until the flip, and stable's last pod had gone long before it."""
    story = await watched(room=(0, 1), replicas=replicas)
    await at_weight(story, 5)
    inside = set()
    story.kube.watches.append(lambda event, raw: inside.add(len(story.watchdog.behind("qwen"))))
    order(story, "Promote", 2)
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    assert 0 not in inside
    assert backends(story) == {"qwen": 1}
    unhurt(story)


async def test_promote_of_the_only_pod_without_surge_comes_back_by_the_route_too(watched):
    """The outage is what the plan says: until the new pod has started, and no longer."""
    story = await watched(room=(0, 1), replicas=1)
    longer(story)
    await story.run_until_reason("WaitingForPods")
    assert story.weights == {"v1": 100}
    order(story, "Promote", 2)
    await story.run_until(lambda: not story.weights)
    gone = story.clock.now
    await story.run_until(lambda: story.weights == {"v2": 100})
    assert story.clock.now - gone < 60
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    assert backends(story) == {"qwen": 1}


async def test_while_a_canary_carries_all_callers_inside_the_cluster_reach_it_too(watched):
    story = await watched(steps=[{"weight": 20, "minSeconds": 600}])
    await at_weight(story, 20)
    story.say("every pod of v1 restarts")
    story.behave(1, start=90.0)
    for raw in story.fleet.pods(story.revision(1).name):
        story.fleet.restart(raw)
    await story.run_until(lambda: story.weights == {"v2": 100})
    await story.run(5)
    assert len(story.watchdog.behind("qwen")) == 1
    await story.run_until(lambda: story.weights == {"v1": 80, "v2": 20})
    assert len(story.watchdog.behind("qwen")) == 4
    unhurt(story)


@pytest.mark.parametrize("late", [0.0, 30.0])
async def test_a_canary_that_has_everything_gives_it_back_as_stable_grows(watched, late):
    """argo-rollouts#3941: a fast way back sent everything to the first pod that was ready."""
    story = await watched()
    story.fleet.gateway.late = late
    await at_weight(story, 5)
    order(story, "Promote", 2)
    await story.run_until(lambda: story.weights == {"v2": 100})
    assert story.stable.number == 1
    first = at_writes(story, "v1")
    longer(story, 3)
    await story.run_until(lambda: story.weights == {"v1": 100} and not story.revision(2).alive)
    assert len(set(first)) > 2
    unhurt(story)


async def test_while_stables_first_pod_waits_for_its_weight_the_canary_gives_up_none(watched):
    """A pod that only `Service <name>` selected counted as capacity of the route, and one of the canary was drained."""
    story = await watched(room=(0, 1), replicas=3)
    await at_weight(story, 5)
    order(story, "Promote", 2)
    await story.run_until(lambda: not story.revision(1).alive)
    assert story.stable.number == 1
    longer(story, 3)
    await story.run_until(lambda: story.weights == {"v1": 100} and not story.revision(2).alive)
    unhurt(story)


async def test_stable_returns_pod_by_pod_after_the_canary_carried_all(watched):
    """argo-rollouts#3941: weight follows the pods that are ready."""
    story = await watched(steps=[{"weight": 20, "minSeconds": 600}])
    await at_weight(story, 20)
    first, *others = story.fleet.pods(story.revision(1).name)
    story.say("every pod of v1 restarts, all but one of them slowly")
    story.fleet.restart(first)
    story.behave(1, start=90.0)
    for raw in others:
        story.fleet.restart(raw)
    await story.run_until(lambda: story.weights == {"v2": 100})
    await story.run_until(lambda: story.weights == {"v1": 25, "v2": 75})
    await story.run_until(lambda: story.weights == {"v1": 80, "v2": 20})
    unhurt(story)


async def test_a_weight_that_may_not_rise_keeps_the_pods_of_stable(watched):
    """While somebody contests the weights, stable shrank under what the route still sent it."""
    story = await watched()
    await at_weight(story, 5)
    for _ in range(3):
        await story.run_until(lambda: "v2" in story.weights)
        await story.run(2)
        rewrite(story, [backend("qwen", 1)])
        await story.run(2)
    assert story.reason == "RouteContested"
    order(story, "Promote", 2)
    await story.run(120)
    assert story.weights.get("v1", 0) >= 95
    assert story.revision(1).ready >= 3
    unhurt(story)


async def test_the_pass_that_withdraws_a_weight_takes_no_pod_of_stable(watched):
    """The canary's pods counted as capacity in the very pass in which they lost their requests."""
    story = await watched()
    await at_weight(story, 5)
    order(story, "Promote", 2)
    story.fleet.gateway.unresolved = {story.revision(2).name}
    await story.run(45)
    assert story.weights == {"v1": 100}
    unhurt(story)


async def test_a_data_plane_that_has_not_begun_with_a_weight_keeps_its_pods(watched):
    """argo-rollouts#3586, #3681: no request for ten seconds meant only that the proxies had yet to begin."""
    story = await watched()
    story.fleet.gateway.late = 15.0
    await at_weight(story, 5)
    await story.run(5)
    longer(story, 3)
    await story.run_until(lambda: not story.revision(2).alive)
    unhurt(story)


async def test_pods_outlast_their_drain_while_a_gateway_has_not_read_the_route(watched):
    """argo-rollouts#4347, #4828: what a gateway still sends requests to is not removed because a time is over."""
    story = await watched()
    await at_weight(story, 5)
    await story.run(5)
    story.say("the gateway's controller stands still")
    story.fleet.gateway.frozen = True
    longer(story, 3)
    await story.run(150)
    assert story.revision(2).ready == 1
    story.fleet.gateway.frozen = False
    await story.run_until(lambda: not story.revision(2).alive)
    unhurt(story)


async def test_pods_go_after_their_drain_also_where_somebody_else_wrote_the_route_last(watched):
    """Nobody knew when the operator had written it, and the pods of a canary stayed for ever."""
    story = await watched()
    await at_weight(story, 5)
    await story.run(5)
    story.restart("the operator dies")
    rewrite(story, [backend("qwen", 1)])
    longer(story, 3)
    await story.run_until(lambda: not story.revision(2).alive, seconds=120)
    unhurt(story)


@pytest.mark.parametrize("foreign", [[], [backend("llama", 60)]])
async def test_a_user_who_gives_us_the_weight_0_is_obeyed_until_they_give_us_one_again(watched, foreign):
    """kgateway#11548: never a rule without weight, and never against its owner."""
    story = await watched({**CHAT, "backendRefs": [*foreign, backend("qwen", 100)]})
    rewrite(story, [*foreign, backend("qwen", 0)], "kubectl")
    calls = len(story.kube.calls)
    longer(story)
    await story.run(120)
    assert story.reason == "RouteUnusable"
    assert backends(story)["qwen"] == 0
    assert not any(call.kind == "HTTPRoute" for call in story.kube.calls[calls:])
    rewrite(story, [*foreign, backend("qwen", 80)], "kubectl")
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    assert backends(story)["qwen"] == 80


async def test_a_weight_at_rest_is_the_users_to_change(watched):
    """The first pass after the edit wrote the old one back, and took that for the user's."""
    story = await watched({**CHAT, "backendRefs": [backend("llama", 60), backend("qwen", 100)]})
    rewrite(story, [backend("llama", 60), backend("qwen", 40)], "kubectl")
    await story.run(90)
    assert backends(story) == {"llama": 60, "qwen": 40}
    assert story.reason == "Stable"


async def test_a_users_route_that_goes_and_comes_again_is_used_again(watched):
    """Once the operator had written to it, its deletion stopped every later pass."""
    story = await watched(CHAT)
    await at_weight(story, 5)
    before = route(story)
    story.watchdog.excuse()
    story.kube.remove("HTTPRoute", "chat", "mine")
    await story.run_until_reason("RouteNotFound")
    meta = {"name": "mine", "namespace": "chat"}
    story.kube.managed({**before, "metadata": meta, "spec": {**before["spec"], "rules": [CHAT]}}, STRANGER)
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    assert backends(story) == {"qwen": 1}


@pytest.mark.parametrize("canary", [False, True])
async def test_whoever_rewrites_at_once_is_answered_no_more_than_once_a_second(watched, canary):
    """argo-cd#11876: two that answer each other at once, in a fight that nothing slows down."""
    story = await watched()
    if canary:
        await at_weight(story, 5)
        await story.run(5)
    wrong = [backend("qwen", 1), backend(story.revisions[-1].name if canary else "qwen-bcdfghjk", 9)]
    calls = len(story.kube.calls)
    for _ in range(300):
        if {item["name"]: item["weight"] for item in wrong} != backends(story):
            rewrite(story, wrong)
        await story.run(0.2)
    writes = sum(call.kind == "HTTPRoute" for call in story.kube.calls[calls:])
    assert 3 <= writes <= 60
    assert story.reason == "RouteContested"


async def test_one_rewrite_at_rest_counts_as_one_however_long_it_takes_to_undo_it(watched):
    """Each pass that met it was counted, and after three of them a person was called."""
    story = await watched()
    rewrite(story, [backend("qwen", 1), backend("qwen-bcdfghjk", 9)])
    at = len(story.kube.calls)
    for call in range(at + 1, at + 9):
        story.kube.fail_at(call, "500")
    await story.run(60)
    assert backends(story) == {"qwen": 1}
    assert story.reason == "Stable"
