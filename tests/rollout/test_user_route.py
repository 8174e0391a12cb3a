"""Traffic by the user's own HTTPRoute: only our references in one rule are touched, and at rest it is as Git has it."""

import pytest

from fake_gateway import backend, user_route
from story import Story

FOREIGN = {
    "name": "images",
    "matches": [{"path": {"type": "PathPrefix", "value": "/images"}}],
    "backendRefs": [backend("painter", 3)],
}
CHAT = {
    "name": "chat",
    "matches": [{"path": {"type": "PathPrefix", "value": "/v1"}}],
    "filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x", "value": "y"}]}}],
    "backendRefs": [backend("qwen")],
    "timeouts": {"request": "0s"},
}
STEPS = [{"weight": 5, "minSeconds": 10}, {"weight": 50, "minSeconds": 10}]


@pytest.fixture
def by_route(at_rest):
    async def make(*rules, rule="chat"):
        # The story's gateway looks at the last rule.
        traffic = {"route": {"name": "mine", **({"rule": rule} if rule else {})}}
        spec = {"traffic": traffic, "rollout": {"steps": STEPS}}
        return await at_rest(route="mine", before=[user_route("mine", list(rules))], spec=spec)

    return make


def spec(story):
    return story.kube.find("HTTPRoute", "chat", "mine")["spec"]


async def test_a_whole_rollout_leaves_the_route_as_git_has_it(by_route, golden):
    story = await by_route(FOREIGN, CHAT)
    before = spec(story)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.weights.get("v2", 0) == 5)
    rules = spec(story)["rules"]
    assert rules[0] == FOREIGN
    assert {**rules[1], "backendRefs": CHAT["backendRefs"]} == CHAT
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    # The API server would have written out the weight of 1 at the start.
    assert spec(story) == {**before, "rules": [FOREIGN, {**CHAT, "backendRefs": [backend("qwen", 1)]}]}
    golden(story)


async def test_beside_another_backend_only_our_part_is_divided(by_route, golden):
    shared = {**CHAT, "backendRefs": [backend("llama", 100), backend("qwen", 100), backend("mixtral", 50)]}
    story = await by_route(shared)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    llama, stable, canary, mixtral = spec(story)["rules"][0]["backendRefs"]
    assert [llama, mixtral] == [backend("llama", 100), backend("mixtral", 50)]
    assert (stable["name"], stable["weight"], canary["weight"]) == ("qwen", 95, 5)
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    assert spec(story)["rules"] == [shared]


async def test_a_weight_that_cannot_be_divided_is_said_and_left(by_route):
    shared = {**CHAT, "backendRefs": [backend("llama", 1), backend("qwen", 1)]}
    story = await by_route(shared)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until_reason("RouteUnusable")
    await story.run(60)
    assert spec(story)["rules"] == [shared]


@pytest.mark.parametrize("rule", ["other", None])
async def test_without_the_rule_nothing_is_touched(at_rest, rule):
    route = user_route("mine", [FOREIGN, CHAT])
    traffic = {"route": {"name": "mine", **({"rule": rule} if rule else {})}}
    story = await at_rest(spec={"rollout": {"steps": STEPS}})
    story.kube.put(route)
    story.edit("by a route", traffic=traffic)
    await story.run_until_reason("RouteUnusable")
    assert spec(story) == route["spec"]


async def test_a_route_that_is_not_there_is_waited_for(at_rest):
    story = await at_rest()
    story.edit("by a route", traffic={"route": {"name": "mine"}})
    await story.run_until_reason("RouteNotFound")
    story.kube.put(user_route("mine", [CHAT]))
    await story.run_until_reason("RouteNotAccepted")


async def test_an_aborted_canary_leaves_the_route_as_git_has_it(by_route, golden):
    story = await by_route(FOREIGN, CHAT)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until_reason("CanaryAnalysing")
    story.behave(2, "acceptance of v2 collapses", accept=0.03)
    await story.run_until_reason("CanaryAborted")
    assert not story.weights.get("v2")
    await story.run_until(lambda: not story.revision(2).alive)
    assert spec(story)["rules"] == [FOREIGN, {**CHAT, "backendRefs": [backend("qwen", 1)]}]
    golden(story)


@pytest.mark.parametrize("gone", ["deleted", "torn"])
async def test_without_its_evidence_our_part_beside_another_backend_stays_as_large(by_route, gone):
    """What weighs how much is read off the route itself: a divided part has the sum that it has at rest."""
    shared = {**CHAT, "backendRefs": [backend("llama", 100), backend("qwen", 100), backend("mixtral", 50)]}
    story = await by_route(shared)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    if gone == "deleted":
        story.kube.remove("ConfigMap", "chat", "qwen-evidence")
    else:
        stored = story.kube.find("ConfigMap", "chat", "qwen-evidence")
        story.kube.put({**stored, "data": {**stored["data"], "memory": "{"}})

    def whole():
        ours = [item["weight"] for item in spec(story)["rules"][0]["backendRefs"] if item["name"].startswith("qwen")]
        assert sum(ours) == 100
        return story.stable.number == 2

    await story.run_until(whole)
    await story.run_until_reason("Stable")
    assert spec(story)["rules"][0]["backendRefs"] == shared["backendRefs"]
    assert story.watchdog.wrongs == []


async def test_of_two_on_one_rule_the_younger_waits_and_leaves_the_rule_alone(at_rest):
    rule = {"name": "chat", "backendRefs": [backend("llama", 1)]}
    mine = user_route("mine", [rule])
    elder = {
        "apiVersion": "specfleet.dev/v1alpha1",
        "kind": "SpecDecodeDeployment",
        "metadata": {"name": "llama", "namespace": "chat"},
        "spec": {"traffic": {"route": {"name": "mine", "rule": "chat"}}},
    }
    story = Story(route="mine", before=[mine, elder], spec={"traffic": {"route": {"name": "mine", "rule": "chat"}}})
    await story.run_until_reason("RouteConflict", seconds=300)
    assert "chat/llama" in story.status["message"]
    before = story.kube.find("HTTPRoute", "chat", "mine")["spec"]
    story.edit("longer", speculation={"numSpeculativeTokens": 5})
    await story.run(300)
    assert story.kube.find("HTTPRoute", "chat", "mine")["spec"] == before
    assert story.reason == "RouteConflict"
    story.kube.remove("SpecDecodeDeployment", "chat", "llama")
    live = story.kube.find("HTTPRoute", "chat", "mine")
    story.kube.put({**live, "spec": {**live["spec"], "rules": [{**rule, "backendRefs": [backend("qwen", 1)]}]}})
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
