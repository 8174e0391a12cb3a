"""What other controllers that shift traffic by a route got wrong, each with the test that shows that this one does not.

Here, or in test_gateway.py (G), test_gateway_hardships.py (H), test_user_route.py (U), test_crash_anywhere.py (C) and
test_gateway_model.py (M), whose invariants hold in any order of events:

- argo-rollouts#1026, a Service of unready pods: test_neither_a_cohort_nor_a_weight_goes_to_pods_that_are_not_ready; M
- argo-rollouts#3617, #3898, #4390, V1 -> V2 -> V3 aimed at an empty canary:
  test_a_third_revision_takes_the_cohort_and_the_weight_off_the_second_before_its_pods; G
  test_a_third_revision_takes_the_place_of_the_second
- argo-rollouts#2235, old pods gone before the switch: H
  test_without_a_surge_the_requests_of_stables_last_pod_go_before_it; M
- argo-rollouts#3586, #3681, #4347, #4828, pods removed before proxies knew: G
  test_a_slow_data_plane_loses_no_request; H test_a_data_plane_that_has_not_begun_with_a_weight_keeps_its_pods,
  test_pods_outlast_their_drain_while_a_gateway_has_not_read_the_route; M
- argo-rollouts#3941, everything to the first ready pod: H
  test_a_canary_that_has_everything_gives_it_back_as_stable_grows,
  test_stable_returns_pod_by_pod_after_the_canary_carried_all; M
- argo-rollouts#3020, #3077, #3372, everything to a shrunken stable: H
  test_a_third_revision_at_half_of_the_pods_gets_nothing_and_stable_no_more_than_it_can_carry,
  test_going_back_at_half_of_the_pods_waits_for_stables_pods; M
- argo-rollouts#4486, rollouts-plugin-trafficrouter-gatewayapi#147, #191, a header route that was lost stayed lost:
  test_a_header_rule_that_somebody_takes_away_is_back_in_the_next_pass
- rollouts-plugin-trafficrouter-gatewayapi#158, #115, weights written into header rules:
  test_a_header_rule_of_the_users_own_is_not_weighted
- rollouts-plugin-trafficrouter-gatewayapi#203, #217, #145, other people's rules and backends deleted: U
  test_a_whole_rollout_leaves_the_route_as_git_has_it, test_beside_another_backend_only_our_part_is_divided; M
- rollouts-plugin-trafficrouter-gatewayapi#208, #190, argo-cd#11876, self-heal fights for ever: G
  test_whoever_resets_the_weights_again_and_again_is_named_and_never_fought_upwards; H
  test_a_weight_that_may_not_rise_keeps_the_pods_of_stable
- rollouts-plugin-trafficrouter-gatewayapi#164, two rollouts on one route:
  test_two_that_have_a_rule_each_of_one_route_do_not_undo_each_other; G test_of_two_with_one_hostname_the_older_has_it
- kgateway#11548, a rule without any weight: H
  test_a_user_who_gives_us_the_weight_0_is_obeyed_until_they_give_us_one_again; M
- kgateway#11667, kthena#1473, weights accepted and ignored: G
  test_a_split_that_the_gateway_does_not_make_holds_the_step
- flagger#1791, linkerd2#14964, gone on before acceptance, or stuck without a generation:
  test_only_a_route_that_every_gateway_has_read_as_it_is_is_in_force; G test_a_frozen_gateway_holds_the_step
- flagger#1532, #1647, sticky clients pile up on the canary: test_clients_that_cling_to_the_canary_hold_the_step
- argo-rollouts#4694, a promotion whose event was missed: test_an_order_whose_event_is_lost_is_found_by_the_next_list
"""

import re
from pathlib import Path

import pytest

from fake_gateway import backend, user_route
from fake_kube import FakeKube
from specfleet.plan import Verb, Write
from specfleet.resources.route import API_VERSION, KIND, Backend, patch
from specfleet.rollout.acceptance import refused

HERE = Path(__file__).parent
COHORT = {"name": "internal", "header": {"name": "x-audience", "value": "internal"}}
GATEWAY = {"gateway": {"name": "public", "namespace": "gateways"}, "cohorts": [COHORT]}
INTERNAL = {"cohort": "internal", "minSeconds": 30}


@pytest.fixture
def by_gateway(at_rest):
    async def make(*steps):
        return await at_rest(route="qwen", spec={"traffic": GATEWAY, "rollout": {"steps": list(steps)}})

    return make


def rules(story):
    return story.kube.find("HTTPRoute", "chat", story.route)["spec"]["rules"]


def named(story):
    """Services to which some rule sends requests."""
    return {item["name"] for rule in rules(story) for item in rule["backendRefs"] if item["weight"]}


def longer(story, length=5):
    story.edit(f"numSpeculativeTokens -> {length}", speculation={"numSpeculativeTokens": length})


@pytest.mark.parametrize("first", [INTERNAL, {"weight": 20, "minSeconds": 30}])
async def test_neither_a_cohort_nor_a_weight_goes_to_pods_that_are_not_ready(by_gateway, first):
    story = await by_gateway(first, {"weight": 50, "minSeconds": 10})
    story.behave(2, "v2 takes its time", start=60.0)
    longer(story)
    await story.run(55)
    assert story.revision(2).ready == 0
    assert named(story) == {"qwen"}
    await story.run_until(lambda: story.revision(2).name in named(story))
    assert story.revision(2).ready == 1


async def test_a_third_revision_takes_the_cohort_and_the_weight_off_the_second_before_its_pods(by_gateway):
    story = await by_gateway(INTERNAL, {"weight": 50, "minSeconds": 10})
    story.fleet.gateway.cohort = 0.1
    longer(story)
    await story.run_until(lambda: len(rules(story)) == 2)
    second = story.revision(2).name
    drained = []

    def written(write):
        if write.kind == "Pod" and write.name.startswith(second):
            drained.append(second in named(story))

    story.kube.written.append(written)
    longer(story, 7)
    await story.run_until(lambda: story.stable.number == 3)
    assert drained == [False]
    assert (story.watchdog.wrongs, story.fleet.lost) == ([], 0)


async def test_a_header_rule_that_somebody_takes_away_is_back_in_the_next_pass(by_gateway):
    story = await by_gateway({**INTERNAL, "minSeconds": 600}, {"weight": 50, "minSeconds": 10})
    longer(story)
    await story.run_until(lambda: len(rules(story)) == 2)
    await story.run(10)
    live = story.kube.find("HTTPRoute", "chat", "qwen")
    before = live["spec"]["rules"]
    story.kube.managed({**live, "spec": {**live["spec"], "rules": before[1:]}}, "kubectl-edit")
    await story.run_until(lambda: rules(story) == before, seconds=10)


async def test_a_header_rule_of_the_users_own_is_not_weighted(at_rest):
    header = {"headers": [{"type": "Exact", "name": "x-audience", "value": "internal"}]}
    internal = {"name": "internal", "matches": [header], "backendRefs": [backend("qwen", 7)]}
    route = user_route("mine", [internal, {"name": "chat", "backendRefs": [backend("qwen", 1)]}])
    traffic = {"route": {"name": "mine", "rule": "chat"}}
    story = await at_rest(route="mine", before=[route], spec={"traffic": traffic})
    longer(story)
    seen = []
    story.kube.written.append(lambda _: seen.append(rules(story)[0]))
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    assert len(rules(story)[1]["backendRefs"]) == 1
    assert all(rule == internal for rule in seen)


async def test_two_that_have_a_rule_each_of_one_route_do_not_undo_each_other():
    kube = FakeKube(lambda: 0.0)
    mine, theirs = ({"name": name, "backendRefs": [backend(name, 1)]} for name in ("llama", "qwen"))
    read = kube.put(user_route("shared", [mine, theirs]))

    async def split(index, name):
        wanted = [Backend(name, 95), Backend(f"{name}-bcdfghjk", 5)]
        operations = patch(read, index, frozenset({name}), wanted, risky=False)
        meta = {"name": "shared", "uid": read["metadata"]["uid"]}
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "patch": operations}
        await kube.write("chat", Write(Verb.JSON_PATCH, body, "both have read the route before either wrote"))

    await split(0, "llama")
    await split(1, "qwen")
    route = kube.find("HTTPRoute", "chat", "shared")
    found = [[(item["name"], item["weight"]) for item in rule["backendRefs"]] for rule in route["spec"]["rules"]]
    assert found == [[(name, 95), (f"{name}-bcdfghjk", 5)] for name in ("llama", "qwen")]


def condition(type, status="True", generation=3):
    said = {"type": type, "status": status, "reason": "Because", "message": "so"}
    return said if generation is None else {**said, "observedGeneration": generation}


def parent(*conditions, name="public"):
    return {"parentRef": {"name": name, "namespace": "gateways"}, "controllerName": "a/b", "conditions": conditions}


ACCEPTED, RESOLVED = condition("Accepted"), condition("ResolvedRefs")


@pytest.mark.parametrize(
    ("parents", "reason"),
    [
        ([parent(ACCEPTED, RESOLVED)], None),
        ([parent(ACCEPTED)], None),
        ([], "RouteNotAccepted"),
        ([parent()], "RouteNotAccepted"),
        ([parent(ACCEPTED, RESOLVED, name="another")], "RouteNotAccepted"),
        ([parent(condition("Accepted", "False"), RESOLVED)], "RouteNotAccepted"),
        ([parent(condition("Accepted", generation=2), RESOLVED)], "RouteNotAccepted"),
        ([parent(condition("Accepted", generation=None), RESOLVED)], "RouteNotAccepted"),
        ([parent(ACCEPTED, RESOLVED, condition("PartiallyInvalid"))], "RouteNotAccepted"),
        ([parent(ACCEPTED, condition("ResolvedRefs", "False"))], "RouteRefsNotResolved"),
    ],
)
def test_only_a_route_that_every_gateway_has_read_as_it_is_is_in_force(parents, reason):
    route = user_route("mine", [{"backendRefs": [backend("qwen")]}])
    route = {**route, "metadata": {**route["metadata"], "generation": 3}, "status": {"parents": parents}}
    note = refused(route)
    assert (note and note.reason) == reason


async def test_clients_that_cling_to_the_canary_hold_the_step(by_gateway):
    story = await by_gateway({"weight": 20, "minSeconds": 10}, {"weight": 50, "minSeconds": 10})
    longer(story)
    await story.run_until(lambda: story.weights.get("v2", 0) == 20)
    story.fleet.gateway.clings = 0.5
    await story.run_until_reason("SplitNotHonoured")
    await story.run(120)
    assert story.weights["v2"] == 20


async def test_an_order_whose_event_is_lost_is_found_by_the_next_list(by_gateway):
    story = await by_gateway({"weight": 20, "minSeconds": 600}, {"weight": 50, "minSeconds": 10})
    longer(story)
    await story.run_until(lambda: story.weights.get("v2", 0) == 20)
    story.deaf = True
    action = {"type": "Promote", "revision": story.revision(2).name, "id": "1"}
    story.edit("Promote v2", rollout={"action": action})
    story.deaf = False
    await story.run(2)
    assert "lastHandledAction" not in story.status
    await story.resync()
    await story.run_until(lambda: "lastHandledAction" in story.status, seconds=2)
    await story.run_until(lambda: story.stable.number == 2)


def test_every_test_that_is_named_above_is_there():
    named_tests = set(re.findall(r"test_\w+(?!\.py)\b", __doc__)) - {path.stem for path in HERE.glob("test_*.py")}
    defined = {name for path in HERE.glob("test_*.py") for name in re.findall(r"def (test_\w+)\(", path.read_text())}
    assert named_tests
    assert named_tests <= defined, named_tests - defined
