"""What a rollout makes of measurements that are partly missing, of its own age, and of what runs beside vLLM."""

import pytest

from arms import raw_pod
from specfleet.api import names
from specfleet.api.v1alpha1 import SpecDecodeDeploymentStatus
from specfleet.controller.telemetry import Unreachable
from specfleet.rollout.world import pod
from specfleet.telemetry import evidence
from story import Story

SIDECAR = {"name": "istio-proxy", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}


async def half_way(at_rest, pace=1.0, **spec):
    story = await at_rest(spec=spec)
    story.behave(2, pace=pace)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: [item.wanted for item in story.revisions] == [2, 2])
    return story


def spoil(story, number, how):
    """From now on the page of one pod of a revision, of several, cannot be read."""
    plain, (_, victim) = story.fleet.scrape, [item.name for item in story.revision(number).pods if item.serving]

    async def scrape(pod):
        if pod.name == victim and isinstance(how, Exception):
            raise how
        return how if pod.name == victim else await plain(pod)

    story.telemetry._scrape = scrape


@pytest.mark.parametrize("how", [Unreachable("timed out"), b"vllm:num_requests_running{ 1\n"], ids=["silent", "torn"])
async def test_a_canary_of_which_one_pod_cannot_be_read_holds(at_rest, how):
    story = await half_way(at_rest)
    spoil(story, 2, how)
    await story.run(900)
    assert (story.reason, story.weights) == ("MetricsUnreachable", {"v1": 50, "v2": 50})
    assert story.revision(2).aborted == ""
    assert "no metrics of canary: " in story.status["message"]
    story.telemetry._scrape = story.fleet.scrape
    await story.run_until(lambda: story.stable.number == 2)
    assert story.watchdog.wrongs == []


async def test_a_stable_revision_of_which_one_pod_cannot_be_read_is_known_by_the_others(at_rest):
    story = await half_way(at_rest)
    spoil(story, 1, Unreachable("timed out"))
    await story.run_until(lambda: story.stable.number == 2)


async def test_time_to_prove_runs_out_though_the_oldest_blocks_are_forgotten(at_rest, monkeypatch):
    monkeypatch.setattr(evidence, "MAX_BLOCKS", 10)
    margins = {"speedPercent": 1, "acceptancePoints": 1, "errorPoints": 1}
    analysis = {"maxSeconds": 300, "margins": margins}
    story = await half_way(at_rest, pace=1.07, rollout={"onInconclusive": "Abort", "analysis": analysis})
    await story.run_until_reason("CanaryAborted")
    assert story.revision(2).aborted.startswith("CanaryInconclusive")


@pytest.mark.parametrize("pace", [1.0, 1.6])
async def test_what_is_proven_is_not_asked_again_on_the_way_to_100_percent(at_rest, pace):
    """Blocks go on to be counted while pods start; evidence and replay end with the proof, and so does the judge."""
    story = await half_way(at_rest, rollout={"onInconclusive": "Abort", "analysis": {"maxSeconds": 200}})
    await story.run_until_reason("CanaryPromoting")
    story.behave(2, "the pods of v2 start late now, and are another speed", start=200.0, pace=pace)
    await story.run_until(lambda: story.stable.number == 2, seconds=3000)
    assert story.watchdog.wrongs == []


async def test_restarts_of_a_sidecar_are_not_the_engines(at_rest):
    story = await half_way(at_rest)
    for raw in story.fleet.pods(story.revision(2).name):
        status = {**raw["status"], "containerStatuses": [SIDECAR, *raw["status"]["containerStatuses"]]}
        story.kube.put({**raw, "status": status})
    await story.run(5)
    assert {item.restarts for item in story.revision(2).pods} == {0}
    await story.run_until(lambda: story.stable.number == 2)
    assert story.watchdog.wrongs == []


def test_restarts_are_counted_of_the_vllm_container_wherever_it_stands():
    raw = raw_pod("v1", "v1-0")
    own = {"name": names.CONTAINER, "restartCount": 1, "state": {"running": {}}}
    for statuses in ([SIDECAR, own], [own, SIDECAR]):
        raw["status"]["containerStatuses"] = statuses
        assert (pod(raw).restarts, pod(raw).trouble) == (1, "")
    raw["status"]["containerStatuses"] = [SIDECAR]
    assert (pod(raw).restarts, pod(raw).trouble) == (0, "")


async def test_a_status_fits_its_schema_whatever_the_products_are_called():
    products = [f"MI300X-{index:02}-".ljust(63, "x") for index in range(16)]
    story = Story(spec={"accelerator": {"products": products}})
    await story.run_until_reason("Stable", seconds=300)
    assert story.status["gpu"] == "/".join(products)[:253]
    SpecDecodeDeploymentStatus.model_validate(story.status)
