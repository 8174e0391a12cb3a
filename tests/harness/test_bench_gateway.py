"""The benchmark behind a gateway: what is counted as lost, whose it is, and how the contenders stand side by side."""

from __future__ import annotations

from bench.gateway_page import TITLES, lost, rows, section
from bench.look import Look, State
from bench.losses import ENDPOINT, Killed, Lost, counted, ended
from bench.report import rendered
from bench.routed_manifests import argo, flagger
from bench.stories import Story, ended_at
from bench.watch import GATE_SECONDS, Gate
from harness.crowd import Failure
from harness.loadreport import Second

PARENT = {"name": "public", "namespace": "gateways"}


def failure(time: float, kind: str, pod: str = "") -> Failure:
    return Failure(0, time, kind, pod, "")


def told(failed: int = 0, cut: int = 0, peak: int = 9) -> Story:
    short, streams = Lost(1000, {"http 503": failed} if failed else {}), Lost(20, {"cut": cut} if cut else {})
    return Story("promoted", 100.0, 160.0, {"get pods": 70, "update leases": 30}, peak, short, streams)


def test_only_what_ended_within_the_story_is_lost_in_it() -> None:
    failures = [failure(time, "cut", "a") for time in (9.0, 10.0, 19.0, 20.0)]
    assert counted(7, failures, 10.0, 20.0) == Lost(7, {"cut": 2})


def test_what_was_in_the_hands_of_the_killed_pod_is_counted_apart() -> None:
    killed = Killed("a", 100.0)
    failures = [
        failure(100.0, "cut", "a"),
        failure(101.0, "http 503"),
        failure(101.0, "http 503", "b"),
        failure(101.0, "http 500"),
        failure(101.0 + ENDPOINT, "cut", "a"),  # it is back, and goes with the old revision
        failure(101.0 + ENDPOINT, "http 503"),
    ]
    found = counted(1000, failures, 0.0, 1000.0, killed)
    assert found.killed == {"cut": 1, "http 503": 1}
    assert found.kinds == {"cut": 1, "http 503": 2, "http 500": 1}
    assert found.failed == 4


def test_requests_are_counted_by_the_second_in_which_they_ended() -> None:
    timeline = [Second({"a": 5}), Second({"a": 3, "b": 1}, failures=2), Second({"b": 9})]
    assert ended(timeline, 100.0, 101.0, 102.0) == 6
    assert ended(timeline, 100.0, 0.0, 1000.0) == 20


def test_losses_are_told_with_their_kinds_the_most_frequent_first() -> None:
    assert lost(Lost(16, {"reset": 1, "http 503": 2})) == "3 of 16 (2 http 503, 1 reset)"
    assert lost(Lost(16)) == "0 of 16"


def test_a_story_has_a_column_for_everyone_who_went_through_it() -> None:
    results = {"specfleet": {"promotion": told(), "killed": told()}, "Flagger": {"promotion": told(cut=3, peak=25)}}
    table = rows(results, "promotion")
    assert table[0] == ["", "specfleet", "Flagger"]
    assert ["cut streams", "0 of 20", "3 of 20 (3 cut)"] in table
    assert ["API requests until promoted, without Leases and Events", "70", "70"] in table
    assert rows(results, "killed")[0] == ["", "specfleet"]
    text = rendered(section(results, "a gateway", "-"))
    assert [title in text for title in TITLES.values()] == [True, True, False]
    assert {len(line) for line in table} == {3}


def test_specfleet_is_held_to_its_bars_and_what_misses_one_says_so() -> None:
    bad = section({"specfleet": {"promotion": told(failed=1, peak=10)}}, "a gateway", "-")
    assert [figure.met for figure in bad.figures] == [False, True, False, True]
    assert not section({"Flagger": {"promotion": told()}}, "a gateway", "-").figures


def test_the_pods_of_the_peers_are_the_same_and_their_routes_cut_no_stream() -> None:
    rollout = argo("argo", "argo.example.com", PARENT)
    route = next(item for item in rollout if item["kind"] == "HTTPRoute")
    deployment, _, canary = flagger("flagger", "flagger.example.com", PARENT)
    of_argo, of_flagger = (item["spec"]["template"]["spec"] for item in (rollout[-1], deployment))
    assert of_flagger["containers"][0].pop("lifecycle") == {"preStop": {"exec": {"command": ["sleep", "5"]}}}
    assert of_argo["containers"][0].pop("lifecycle") == {"preStop": {"sleep": {"seconds": 5}}}
    assert of_argo == of_flagger
    assert route["spec"]["rules"][0]["timeouts"] == {"request": "0s"}
    assert canary["spec"]["service"]["timeout"] == "0s"
    assert rollout[-1]["spec"]["replicas"] == deployment["spec"]["replicas"] == 8


def at(time: float, stable: str, newest: str, aborted: bool = False) -> Look:
    return Look(time, states={"web": State(stable, newest, aborted)})


def test_a_story_ends_with_the_revision_that_is_meant() -> None:
    states = (("one", "one"), ("one", "two"), ("two", "two"), ("two", "three"), ("three", "three"))
    looks = [at(number, *state) for number, state in enumerate(states, 1)]
    assert ended_at(looks, "web", {"", "one"}) == 3
    assert ended_at(looks, "web", {"", "one", "two"}) == 5
    assert ended_at(looks[:4], "web", {"", "one", "two"}) is None
    assert ended_at([at(1, "one", "two", aborted=True)], "web", {"", "one"}) == 1
    assert ended_at([at(1, "one", "two", aborted=True)], "web", {"", "one", "two"}) is None
    assert ended_at(looks, "other", {""}) is None


def test_the_gate_lets_each_one_pass_once_in_a_while() -> None:
    gate = Gate()
    assert [gate.opens("a", now) for now in (0.0, 10.0, GATE_SECONDS, GATE_SECONDS + 10)] == [True, False, True, False]
    assert gate.opens("b", 10.0)
