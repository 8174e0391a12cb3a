"""What is measured between passes: when it is scraped, what counts, and what is forgotten."""

import asyncio
from itertools import pairwise

import pytest

from specfleet.controller import telemetry
from specfleet.telemetry.evidence import Arm
from story import Story


async def in_canary():
    story = Story()
    await story.run_until_reason("Stable", seconds=300)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until_reason("CanaryAnalysing")
    return story


@pytest.fixture
def scrapes(monkeypatch):
    """Every scrape as (seconds since the beginning, pod)."""
    seen = []

    def watch(story):
        plain = story.fleet.scrape

        async def scrape(pod):
            seen.append((story.clock.now - story.transcript.began, pod.name))
            return await plain(pod)

        story.telemetry._scrape = scrape
        return seen

    return watch


async def test_both_arms_are_scraped_at_the_same_ticks_and_no_oftener_than_asked(scrapes):
    story = await in_canary()
    seen = scrapes(story)
    await story.run(20)
    ticks = sorted({when for when, _ in seen})
    pods = {raw["metadata"]["name"] for raw in story.fleet.pods()}
    assert all({pod for when, pod in seen if when == tick} == pods for tick in ticks)
    assert all(after - before >= 4.5 for before, after in pairwise(ticks))
    assert len(ticks) >= 3


async def test_at_rest_it_scrapes_once_a_minute(scrapes):
    story = Story()
    await story.run_until_reason("Stable", seconds=300)
    await story.run(60)
    seen = scrapes(story)
    await story.run(600)
    assert 9 <= len({when for when, _ in seen}) <= 11


async def test_evidence_is_of_the_two_revisions_that_are_compared():
    story = await in_canary()
    await story.run(30)
    seen = await story.observe()
    assert seen.evidence_of == (story.revision(1).uid, story.revision(2).uid)
    assert len(seen.evidence.pods[Arm.CANARY]) == 1
    assert len(seen.evidence.pods[Arm.STABLE]) == 4
    story.edit("numSpeculativeTokens 5 -> 4", speculation={"numSpeculativeTokens": 4})
    await story.run_until_reason("Draining")
    await story.run(3)
    seen = await story.observe()
    assert seen.evidence_of == (story.revision(1).uid, story.revision(3).uid)
    assert seen.evidence.blocks == ()


async def test_evidence_outlives_a_restart():
    story = await in_canary()
    await story.run(30)
    before = (await story.observe()).evidence
    story.restart("the operator dies")
    await story.run(4)
    assert before.blocks
    assert (await story.observe()).evidence == before


async def test_a_canary_that_is_not_selected_gathers_no_evidence():
    story = Story()
    await story.run_until_reason("Stable", seconds=300)
    story.edit("paused", paused=True, rollout={"maxSurge": 1})
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run(120)
    assert (await story.observe()).evidence.blocks == ()


async def test_a_good_probe_counts_once_a_scrape_has_seen_what_it_drafted():
    story = Story()
    await story.run_until_reason("Stable", seconds=300)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until_reason("CanaryProbing")
    seen = await story.observe()
    assert {seen.probes[pod.uid, 0].settled for pod in story.revision(2).pods} == {False}
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    seen = await story.observe()
    assert seen.canary.recent.drafts > 0
    assert {seen.probes[pod.uid, 0].settled for pod in story.revision(2).pods} == {True}


async def test_a_resource_that_is_gone_is_forgotten_with_its_probes():
    story = await in_canary()
    story.kube.remove("SpecDecodeDeployment", "chat", "qwen")
    await story.run(5)
    assert story.telemetry._watches == {}


async def test_pods_that_never_answer_a_probe_take_nothing_from_the_scrapes(monkeypatch, scrapes):
    monkeypatch.setattr(telemetry, "AT_ONCE", 1)
    monkeypatch.setattr(telemetry, "PROBES_AT_ONCE", 1)
    story, asked = Story(), []

    async def hang(namespace, pod, payload, path, body):
        asked.append(pod.name)
        await asyncio.Event().wait()

    story.telemetry._ask = hang
    seen = scrapes(story)
    async with asyncio.timeout(20):
        await story.run(300)
    assert len(asked) == 1, "the others wait for their turn"
    assert {pod for when, pod in seen if when > 240} == {raw["metadata"]["name"] for raw in story.fleet.pods()}
    story.telemetry.forget(story.key)


async def test_a_clock_that_is_set_back_stops_no_scrape(scrapes):
    story = await in_canary()
    seen = scrapes(story)
    story.telemetry._clock = lambda: story.clock.now - 3600
    await story.run(20)
    assert len({when for when, _ in seen}) >= 3


async def test_a_fleet_whose_pages_are_slow_leaves_others_their_turn():
    """Of one fleet only so many pages are fetched at a time: the rest of the slots is everybody else's."""
    story = await in_canary()
    now, most = 0, 0

    async def slow(pod):
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        await asyncio.sleep(0)
        now -= 1
        raise telemetry.Unreachable("too slow")

    story.telemetry._scrape = slow
    watch = story.telemetry._watches[story.key]
    (pod, *_) = story.revision(1).pods
    await asyncio.gather(*(story.telemetry._sample(watch, pod) for _ in range(50)))
    assert most == telemetry.OF_ONE_SDD
