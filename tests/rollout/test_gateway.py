"""Traffic through a gateway by the operator's own route, from a first revision to every way out of a canary."""

import math
import re
from itertools import pairwise

import pytest

from fake_gateway import gateway_object

TRAFFIC = {
    "gateway": {"name": "public", "namespace": "gateways"},
    "hostnames": ["qwen.example.com"],
    "cohorts": [{"name": "internal", "header": {"name": "x-audience", "value": "internal"}}],
}
STEPS = [{"weight": 5, "minSeconds": 10}, {"weight": 50, "minSeconds": 10}]


@pytest.fixture
def by_gateway(at_rest):
    async def make(replicas=4, **rollout):
        spec = {"replicas": replicas, "traffic": TRAFFIC, "rollout": {"steps": STEPS, **rollout}}
        return await at_rest(route="qwen", spec=spec)

    return make


def route(story):
    return story.kube.find("HTTPRoute", "chat", "qwen")


def backends(story):
    return {item["name"]: item["weight"] for item in route(story)["spec"]["rules"][-1]["backendRefs"]}


async def canary(story, reached=lambda story: story.weights.get("v2", 0) > 0):
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: reached(story))


async def test_a_canary_is_promoted_by_the_weights_of_the_route(by_gateway, golden):
    story = await by_gateway()
    assert backends(story) == {"qwen": 1}
    await canary(story)
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    assert story.weights == {"v2": 100}
    assert backends(story) == {"qwen": 1}
    golden(story)


async def test_a_service_comes_into_the_route_and_leaves_it_without_weight(by_gateway):
    story = await by_gateway()
    seen = [backends(story)]

    def hear(event, raw):
        if raw["kind"] == "HTTPRoute" and backends(story) != seen[-1]:
            seen.append(backends(story))

    story.kube.watches.append(hear)
    await canary(story, lambda story: story.reason == "CanaryAnalysing")
    story.edit("numSpeculativeTokens 5 -> 7", speculation={"numSpeculativeTokens": 7})
    await story.run_until(lambda: story.stable.number == 3)
    await story.run_until_reason("Stable")
    assert seen[-1] == {"qwen": 1}
    assert len(seen) > 10
    for before, after in pairwise(seen):
        assert not any(after[name] for name in after.keys() - before.keys()), (before, after)
        assert not any(before[name] for name in before.keys() - after.keys()), (before, after)
        assert any(after.values())


async def test_a_slow_data_plane_loses_no_request(by_gateway, golden):
    story = await by_gateway()
    story.fleet.gateway.late = 30.0
    await canary(story)
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    golden(story)


async def test_a_canary_that_does_not_accept_loses_its_weight(by_gateway, golden):
    story = await by_gateway()
    await canary(story, lambda story: story.reason == "CanaryAnalysing")
    story.behave(2, "acceptance of v2 collapses", accept=0.03)
    await story.run_until_reason("CanaryAborted")
    assert backends(story) == {"qwen": 100, story.revision(2).name: 0}
    await story.run_until(lambda: not story.revision(2).alive)
    assert backends(story) == {"qwen": 1}
    golden(story)


@pytest.mark.parametrize(
    ("reason", "how", "carried"),
    [
        ("CanaryStuck", {"hang": True}, True),
        ("CanaryErroring", {"errors": 0.5}, True),
        ("CanaryRegressed", {"pace": 2.0}, True),
        ("CanaryIncorrect", {"garbage": True}, False),
        ("CanaryDoesNotFit", {"blocks": 12_000}, False),
        ("ProgressDeadlineExceeded", {"start": math.inf}, False),
        ("CanaryDead", {"crash": True}, False),
    ],
)
async def test_whatever_aborts_a_canary_the_route_is_stables_again(by_gateway, reason, how, carried):
    story = await by_gateway()
    if carried:
        await canary(story, lambda story: story.reason == "CanaryAnalysing")
        story.behave(2, **how)
    else:
        story.behave(2, **how)
        await canary(story, lambda story: story.revisions[-1].number == 2)
    await story.run_until_reason("CanaryAborted", seconds=6000)
    await story.run_until(lambda: not story.revision(2).alive)
    assert story.revision(2).aborted.startswith(reason)
    assert backends(story) == {"qwen": 1}
    assert story.watchdog.wrongs == []
    assert story.fleet.lost == 0


async def test_at_half_of_the_pods_an_aborted_canary_leaves_as_stable_grows_back(by_gateway, golden):
    story = await by_gateway()
    story.behave(1, "the KV caches are 70 % full: stable cannot carry all before it is whole again", kv=0.7)
    story.behave(2, kv=0.7)
    await canary(story, lambda story: story.weights.get("v2", 0) == 50)
    story.behave(2, "acceptance of v2 collapses", accept=0.03, kv=0.7)
    await story.run_until(lambda: not story.revision(2).alive)
    assert story.reason == "CanaryAborted"
    golden(story)


async def test_a_third_revision_takes_the_place_of_the_second(by_gateway, golden):
    story = await by_gateway()
    await canary(story)
    story.edit("numSpeculativeTokens 5 -> 7", speculation={"numSpeculativeTokens": 7})
    await story.run_until(lambda: story.stable.number == 3)
    await story.run_until_reason("Stable")
    golden(story)


async def test_undo_returns_by_the_route(by_gateway, golden):
    story = await by_gateway()
    await canary(story)
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    story.chapter()
    action = {"type": "Undo", "revision": story.revision(2).name, "id": "1"}
    story.edit("Undo", rollout={"action": action})
    await story.run_until(lambda: story.stable.number == 1)
    await story.run_until(lambda: not story.revision(2).alive)
    assert story.weights == {"v1": 100}
    golden(story)


async def test_a_cohort_comes_first_and_only_it_meets_the_canary(by_gateway, golden):
    story = await by_gateway(steps=[{"cohort": "internal", "minSeconds": 20}, {"weight": 20, "minSeconds": 10}])
    await canary(story, lambda story: len(route(story)["spec"]["rules"]) == 2)
    first = route(story)["spec"]["rules"][0]
    assert first["matches"][0]["headers"] == [{"type": "Exact", "name": "x-audience", "value": "internal"}]
    assert [item["name"] for item in first["backendRefs"]] == [story.revision(2).name]
    assert backends(story) == {"qwen": 100, story.revision(2).name: 0}
    story.fleet.gateway.cohort = 0.1
    v2 = story.revision(2).name
    rules = [f"HTTPRoute qwen: x-audience: internal -> {v2}", f"HTTPRoute qwen: qwen 100%, {v2} 0%"]
    await story.run_until(lambda: story.status["routing"] == rules, 25)
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    assert len(route(story)["spec"]["rules"]) == 1
    await story.run_until(lambda: story.status["routing"] == [f"HTTPRoute qwen: qwen 80%, {v2} 20%"], 25)
    assert "counted" not in story.status["step"]
    await story.run_until(lambda: "counted" in story.status["step"], 60)
    assert re.fullmatch(r"(19|20|21)% of \d{2,3} requests", story.status["step"]["counted"])
    await story.run_until(lambda: story.stable.number == 2)
    golden(story)
    await story.run_until_reason("Stable")
    assert story.status["routing"] == ["HTTPRoute qwen: qwen 100%"]


async def test_when_stable_dies_the_route_sends_all_to_the_canary(by_gateway, golden):
    story = await by_gateway(maxSurge=1)
    await canary(story, lambda story: story.reason == "CanaryAnalysing")
    story.say("every pod of v1 restarts")
    for raw in story.fleet.pods(story.revision(1).name):
        story.fleet.restart(raw)
    await story.run_until_reason("StableUnavailable")
    await story.run_until(lambda: story.weights == {"v2": 100})
    await story.run_until(lambda: story.stable.number == 2)
    golden(story)


async def test_a_canary_that_dies_leaves_the_route_at_once(by_gateway, golden):
    story = await by_gateway()
    await canary(story, lambda story: story.reason == "CanaryAnalysing")
    story.say("the canary's node is gone")
    story.fleet.kill(story.fleet.pods(story.revision(2).name)[0])
    await story.run_until(lambda: backends(story) in ({"qwen": 1}, {"qwen": 100}))
    await story.run_until(lambda: story.stable.number == 2)
    golden(story)


async def test_replicas_may_change_in_the_middle_of_a_canary(by_gateway, golden):
    story = await by_gateway()
    await canary(story, lambda story: story.reason == "CanaryAnalysing")
    story.edit("replicas 4 -> 6", replicas=6)
    await story.run(60)
    story.edit("replicas 6 -> 3", replicas=3)
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    golden(story)


async def test_the_operator_may_die_at_any_time(by_gateway, golden):
    story = await by_gateway()
    await canary(story)
    before = dict(story.weights)
    await story.away(120, "the operator is gone for two minutes")
    assert story.weights == before
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    golden(story)


async def test_without_its_gateway_no_weight_rises(by_gateway, golden):
    story = await by_gateway()
    story.say("the Gateway is deleted")
    story.kube.remove("Gateway", "gateways", "public")
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until_reason("GatewayNotFound")
    await story.run(120)
    assert story.weights == {"v1": 100}
    story.say("the Gateway is back")
    story.kube.put(gateway_object())
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    golden(story)


async def test_a_frozen_gateway_holds_the_step(by_gateway, golden):
    story = await by_gateway()
    await canary(story)
    story.fleet.gateway.frozen = True
    story.say("the gateway's controller stands still")
    await story.run_until_reason("RouteNotAccepted")
    await story.run(120)
    assert story.weights["v2"] < 50
    story.fleet.gateway.frozen = False
    story.say("and goes on")
    await story.run_until(lambda: story.weights.get("v2", 0) >= 50)
    golden(story)


async def test_a_gateway_that_stands_still_hears_of_no_service_that_it_has_not_read(by_gateway, golden):
    story = await by_gateway()
    story.fleet.gateway.frozen = True
    story.say("the gateway's controller stands still, and nothing tells")
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until_reason("RouteNotAccepted")
    await story.run(120)
    assert backends(story) == {"qwen": 100}
    story.fleet.gateway.frozen = False
    story.say("and goes on")
    await story.run_until(lambda: story.weights.get("v2", 0) >= 50)
    golden(story)


async def test_an_announced_canary_that_fails_leaves_the_route_as_it_was(by_gateway):
    story = await by_gateway()
    story.fleet.gateway.frozen = True
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until_reason("RouteNotAccepted")
    story.edit("back", speculation={"numSpeculativeTokens": 3})
    story.fleet.gateway.frozen = False
    await story.run_until_reason("Stable")
    assert backends(story) == {"qwen": 1}


async def test_a_service_that_the_gateway_cannot_use_gets_no_weight(by_gateway, golden):
    story = await by_gateway()
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: len(story.revisions) == 2)
    story.fleet.gateway.unresolved = {story.revision(2).name}
    await story.run_until_reason("RouteRefsNotResolved")
    await story.run(45)
    assert backends(story) == {"qwen": 100, story.revision(2).name: 0}
    story.fleet.gateway.unresolved = set()
    story.fleet.gateway.kick()
    await story.run_until(lambda: story.weights.get("v2", 0) >= 50)
    golden(story)


async def test_a_gateway_that_cannot_use_the_canarys_service_gets_the_old_split_back(by_gateway, golden):
    story = await by_gateway()
    await canary(story, lambda story: story.reason == "CanaryAnalysing")
    story.say("the gateway loses sight of the canary's Service")
    story.fleet.gateway.unresolved = {story.revision(2).name}
    story.fleet.gateway.kick()
    await story.run_until_reason("RouteRefsNotResolved")
    await story.run_until(lambda: not story.weights.get("v2"))
    await story.run(45)
    assert not story.weights.get("v2")
    story.say("and finds it")
    story.fleet.gateway.unresolved = set()
    story.fleet.gateway.kick()
    await story.run_until(lambda: story.weights.get("v2", 0) >= 50)
    golden(story)


async def test_a_split_that_the_gateway_does_not_make_holds_the_step(by_gateway, golden):
    story = await by_gateway(steps=[{"weight": 20, "minSeconds": 10}, {"weight": 50, "minSeconds": 10}])
    story.fleet.gateway.ignores = True
    story.say("the gateway sends everything to its first backend")
    await canary(story)
    await story.run_until_reason("SplitNotHonoured")
    await story.run(60)
    assert story.weights["v2"] == 20
    golden(story)


async def test_when_the_route_is_deleted_it_is_made_again(by_gateway, golden):
    story = await by_gateway()
    await canary(story)
    story.say("someone deletes the route")
    story.kube.remove("HTTPRoute", "chat", "qwen")
    story.watchdog.excuse()
    await story.run_until(lambda: route(story) is not None)
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    golden(story)


async def test_without_a_gateway_in_the_spec_our_route_goes(by_gateway):
    story = await by_gateway()
    story.edit("no gateway any more", traffic=None)
    await story.run_until(lambda: route(story) is None)
    assert story.reason == "Stable"


async def test_a_route_of_that_name_that_is_not_ours_is_left_alone(at_rest):
    story = await at_rest()
    theirs = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "spec": {"rules": []}}
    theirs = story.kube.put({**theirs, "metadata": {"name": "qwen", "namespace": "chat"}})
    story.edit("a gateway", traffic=TRAFFIC)
    await story.run_until_reason("NameTaken")
    await story.run(60)
    assert route(story) == theirs


async def test_whoever_resets_the_weights_again_and_again_is_named_and_never_fought_upwards(by_gateway, golden):
    story = await by_gateway()
    await canary(story)
    story.say("argocd resets the weights every 5 s from now on")
    (rule,) = route(story)["spec"]["rules"]
    rest = [{**rule, "backendRefs": [{**rule["backendRefs"][0], "weight": 1}]}]
    writes = len(story.kube.calls)
    for _ in range(60):
        live = route(story)
        if backends(story) != {"qwen": 1}:
            story.kube.managed({**live, "spec": {**live["spec"], "rules": rest}}, "argocd-controller")
        await story.run(5)
    assert story.reason == "RouteContested"
    assert "argocd-controller" in story.status["message"]
    # Three times it is tried again: announced, brought in without weight, weighed.
    assert sum(call.kind == "HTTPRoute" for call in story.kube.calls[writes:]) <= 9
    golden(story)


async def test_whoever_resets_them_at_once_is_named_too(by_gateway):
    story = await by_gateway()
    (rule,) = route(story)["spec"]["rules"]
    rest = [{**rule, "backendRefs": [{**rule["backendRefs"][0], "weight": 1}]}]

    def reset(write):
        live = route(story)
        if write.kind == "HTTPRoute" and backends(story) != {"qwen": 1}:
            story.kube.managed({**live, "spec": {**live["spec"], "rules": rest}}, "argocd-controller")

    story.kube.written.append(reset)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    before = len(story.kube.calls)
    await story.run_until_reason("RouteContested")
    await story.run(600)
    assert "argocd-controller" in story.status["message"]
    assert sum(call.kind == "HTTPRoute" for call in story.kube.calls[before:]) <= 20
    assert story.watchdog.wrongs == []


async def test_a_canarys_weight_that_someone_raises_is_lowered_again(by_gateway, golden):
    story = await by_gateway()
    await canary(story, lambda story: story.reason == "CanaryAnalysing")
    story.say("somebody gives the canary 90 %")
    live = route(story)
    first, second = live["spec"]["rules"][0]["backendRefs"]
    rules = [{**live["spec"]["rules"][0], "backendRefs": [{**first, "weight": 10}, {**second, "weight": 90}]}]
    story.watchdog.excuse()
    story.kube.managed({**live, "spec": {**live["spec"], "rules": rules}}, "kubectl-edit")
    await story.run_until(lambda: story.weights.get("v2") == 5, seconds=10)
    assert story.watchdog.wrongs == [f"{story.revision(2).name} carries 90 of 100 with 1 of 4 pods"]
    story.watchdog.wrongs.clear()
    golden(story)


async def test_of_two_with_one_hostname_the_older_has_it(by_gateway, golden):
    story = await by_gateway()
    other = {**story.sdd, "metadata": {"name": "elder", "namespace": "other"}}
    story.kube.put(other)
    elder = story.kube.find("SpecDecodeDeployment", "other", "elder")
    meta = {**elder["metadata"], "creationTimestamp": "2020-01-01T00:00:00Z"}
    story.kube.put({**elder, "metadata": meta})
    before = route(story)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until_reason("RouteConflict")
    await story.run(120)
    assert route(story)["spec"] == before["spec"]
    golden(story)
