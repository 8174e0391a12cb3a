"""What the benchmark sees from outside: pods alive, whom a Service offers, which revision is stable."""

from __future__ import annotations

from typing import Any

import pytest

from bench.look import look
from bench.watch import Windows

Item = dict[str, Any]
KINDS = ("pods", "slices", "revisions", "fleets", "rollouts", "canaries", "routes")


def pod(name: str, phase: str = "Running", **labels: str) -> Item:
    return {"metadata": {"name": name, "labels": labels}, "status": {"phase": phase}}


def world(**given: dict[str, Item]) -> dict[str, dict[str, Item]]:
    return {kind: given.get(kind, {}) for kind in KINDS}


def endpoints(**ready: bool) -> Item:
    listed = [{"conditions": {"ready": is_ready}, "targetRef": {"name": name}} for name, is_ready in ready.items()]
    return {"metadata": {"labels": {"kubernetes.io/service-name": "web"}}, "endpoints": listed}


def revision(name: str, number: int, **notes: str) -> Item:
    annotations = {f"specfleet.dev/{key}": value for key, value in notes.items()}
    labels = {"specfleet.dev/deployment": "fleet"}
    return {"metadata": {"name": name, "labels": labels, "annotations": annotations}, "revision": number}


def rollout(observed: str, **status: Any) -> Item:
    return {"metadata": {"name": "web", "generation": 3}, "status": {"observedGeneration": observed, **status}}


def test_pods_that_have_ended_are_not_alive_and_terminating_ones_are() -> None:
    leaving = pod("b", app="web")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    pods = {
        "a": pod("a", app="web"),
        "b": leaving,
        "c": pod("c", "Failed", app="web"),
        "d": pod("d", "Pending", app="x"),
    }
    assert look(world(pods=pods), 1.0).pods == {"web": 2, "x": 1}


def test_only_ready_endpoints_are_offered() -> None:
    hashes = {"a": "old", "b": "new", "c": "new"}
    pods = {name: pod(name, **{"rollouts-pod-template-hash": one}) for name, one in hashes.items()}
    seen = look(world(pods=pods, slices={"s": endpoints(a=True, b=True, c=False)}), 1.0)
    assert seen.serving == {"web": {"old": 1, "new": 1}}


def test_the_highest_promotion_is_stable_and_the_newest_revision_may_be_latched_out() -> None:
    revisions = {
        "one": revision("one", 1, promoted="2 at noon"),
        "two": revision("two", 2, promoted="1"),
        "three": revision("three", 3, aborted="CanaryNotAccepting"),
    }
    fleet = {"metadata": {"name": "fleet", "generation": 2}, "status": {"observedGeneration": 2, "reason": "Stable"}}
    state = look(world(revisions=revisions, fleets={"fleet": fleet}), 1.0).states["fleet"]
    assert (state.stable, state.newest, state.aborted, state.rest) == ("one", "three", True, True)


def test_a_rollout_that_its_controller_has_not_seen_yet_is_neither_at_rest_nor_aborted() -> None:
    status = {"stableRS": "old", "currentPodHash": "old", "phase": "Healthy", "abort": True}
    stale = look(world(rollouts={"web": rollout("2", **status)}), 1.0).states["web"]
    fresh = look(world(rollouts={"web": rollout("3", **status)}), 1.0).states["web"]
    assert (stale.rest, stale.aborted, stale.stable) == (False, False, "old")
    assert (fresh.rest, fresh.aborted, fresh.newest) == (True, True, "old")


def canary(phase: str, applied: str, promoted: str) -> Item:
    return {
        "metadata": {"name": "web"},
        "status": {"phase": phase, "lastAppliedSpec": applied, "lastPromotedSpec": promoted},
    }


def test_flagger_is_at_rest_with_the_revision_that_it_promoted_last() -> None:
    seen = [
        look(world(canaries={"web": canary(*status)}), 1.0).states["web"]
        for status in (
            ("Initialized", "one", "one"),
            ("Progressing", "two", "one"),
            ("Failed", "two", "one"),
            ("Succeeded", "two", "two"),
        )
    ]
    assert [state.rest for state in seen] == [True, False, False, True]
    assert [state.aborted for state in seen] == [False, False, True, False]
    assert (seen[1].stable, seen[1].newest) == ("one", "two")


def route(**weights: int) -> Item:
    references = [{"name": name.replace("_", "-"), "weight": weight} for name, weight in weights.items()]
    return {"metadata": {"name": "web"}, "spec": {"rules": [{"backendRefs": []}, {"backendRefs": references}]}}


@pytest.mark.parametrize(
    ("weights", "share"),
    [
        ({"web": 100}, 0.0),
        ({"web": 95, "web_7f": 5}, 0.05),
        ({"web_stable": 75, "web_canary": 25}, 0.25),
        ({"web_primary": 0, "web_canary": 100}, 1.0),
        ({"web": 0}, 0.0),
    ],
)
def test_what_is_not_stables_is_the_canarys_part_of_a_route(weights: dict[str, int], share: float) -> None:
    assert look(world(routes={"web": route(**weights)}), 1.0).routed["web"] == pytest.approx(share)


def page(drafts: float, accepted: float) -> str:
    return (
        f'vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {drafts}\n'
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {accepted}\n'
    )


def test_the_ratio_is_of_the_last_ten_seconds_only() -> None:
    windows = Windows()
    for second, drafts, accepted in ((0, 0, 0), (2, 1000, 900), (8, 1500, 1150), (13, 2000, 1400)):
        windows.note("a", float(second), page(drafts, accepted))
    assert windows.ratio(["a"]) == 0.5
    assert windows.ratio(["b"]) is None


def test_no_drafts_are_no_ratio() -> None:
    windows = Windows()
    windows.note("a", 0.0, page(10, 5))
    windows.note("a", 2.0, page(10, 5))
    assert windows.ratio(["a"]) is None
