"""Every input gives a plan: what other versions, hands and hostile pods may leave in the way stops no pass."""

import asyncio
import json
import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corruption import ANYTHING, GONE, corruptions
from schema import faults
from specfleet.api import crd, names
from specfleet.judgement.agreement import Answers
from specfleet.judgement.guards import ProbeFacts
from specfleet.judgement.judge import Policy
from specfleet.judgement.questions import BUILT_IN
from specfleet.judgement.selfcheck import SelfCheck
from specfleet.judgement.verdict import Metric
from specfleet.plan import plan
from specfleet.resources.evidence import COMPARISON, EVIDENCE, evidence_map, read_evidence
from specfleet.rollout.comparison import Comparison
from specfleet.rollout.scene import ArmSeen, Seen
from specfleet.rollout.world import revisions
from specfleet.telemetry.counters import NUMBERS, Tally
from specfleet.telemetry.evidence import EMPTY, Block, from_json
from story import Story

SCHEMA = crd.schema()["properties"]["status"]
TRIES = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


async def _half_way():
    story = Story()
    await story.run_until_reason("Stable", seconds=300)
    story.edit("longer drafts", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.weights.get("v2", 0) >= 20)
    await story.run(60)
    return story.sdd, story.objects(), await story.observe(), story.clock.now


@pytest.fixture(scope="module")
def half_way():
    """(sdd, objects, seen, now) of a canary at its first step."""
    return asyncio.run(_half_way())


def fits(sdd, objects, seen, now):
    planned = plan(sdd, objects, seen, now)
    assert list(faults(planned.status, SCHEMA, "status")) == []
    return planned


@TRIES
@given(data=st.data())
def test_whatever_status_holds(half_way, data):
    sdd, objects, seen, now = half_way
    fits({**sdd, "status": data.draw(corruptions(sdd["status"]))}, objects, seen, now)


@TRIES
@given(data=st.data())
def test_whatever_is_remembered(half_way, data):
    sdd, objects, seen, now = half_way
    kept = dict(read_evidence(objects.evidence))
    key = data.draw(st.sampled_from(sorted(kept)))
    kept[key] = json.dumps(data.draw(corruptions(json.loads(kept[key]))))
    stored = {**objects.evidence, "data": evidence_map(sdd, kept)["data"]}
    fits(sdd, replace(objects, evidence=stored), seen, now)


@TRIES
@given(data=st.data())
def test_whatever_annotations_say(half_way, data):
    sdd, objects, seen, now = half_way
    text = st.text(max_size=8) | ANYTHING.filter(lambda value: value is not GONE).map(json.dumps) | st.just("9" * 5000)
    texts = text | text.map(lambda it: f"1 {it}")
    kinds = (names.PROMOTED, names.ABORTED, names.ACTIONS, names.IDENTITY, names.DRAINING_SINCE, names.DELETION_COST)
    notes = st.dictionaries(st.sampled_from(kinds), texts, max_size=3)

    def noted(raw):
        meta = raw["metadata"]
        return {**raw, "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), **data.draw(notes)}}}

    records = {name: noted(raw) for name, raw in objects.revisions.items()}
    fits(sdd, replace(objects, revisions=records, pods=[noted(raw) for raw in objects.pods]), seen, now)


numbers = st.one_of(st.just(0.0), st.integers(0, 10**9).map(float), st.floats(0, 1e15))
tallies = st.builds(
    lambda values, positions, speculating: Tally(*values, per_position=tuple(positions), speculating=speculating),
    st.lists(numbers, min_size=len(NUMBERS), max_size=len(NUMBERS)),
    st.lists(numbers, max_size=3),
    st.booleans(),
)
words = st.text(max_size=12) | st.just("x" * 5000)
spoken = st.lists(words, min_size=len(BUILT_IN), max_size=len(BUILT_IN)).map(tuple)
counts = st.integers(0, 9)
probes = st.builds(ProbeFacts, counts, counts, counts, words, st.floats(0, 1e10), st.just(BUILT_IN), st.booleans())
blocks = st.dictionaries(st.sampled_from(["a", "b"]), tallies, max_size=2)
evidence = st.lists(st.builds(Block, blocks, blocks, st.sampled_from([None, 0.5, 2.0])), max_size=10).map(
    lambda found: [evidence := EMPTY, *(evidence := evidence.add(block) for block in found)][-1]
)


def forged(found):
    """What a hand may have made of the stored evidence."""
    return corruptions(json.loads(found.to_json())).map(_read)


def _read(document):
    try:
        return from_json(json.dumps(document))
    except ValueError:
        return EMPTY


@TRIES
@given(data=st.data())
def test_whatever_was_measured(half_way, data):
    sdd, objects, seen, now = half_way
    found = revisions(objects)
    marks = [(pod.uid, pod.restarts) for revision in found.values() for pod in revision.pods]
    arm = st.builds(
        ArmSeen,
        revision=st.sampled_from(sorted(found)),
        recent=tallies,
        last=st.none() | tallies,
        running=st.none() | numbers,
        stalled=st.floats(0, 1e10),
        fell=st.booleans(),
        kv_tokens=st.none() | numbers,
        unreachable=words,
        unreachable_for=st.floats(0, 1e10),
    )
    mark = st.sampled_from(marks)
    measured = st.builds(
        Seen,
        since=st.floats(0, 1e10),
        stable=arm,
        canary=arm,
        evidence=evidence | forged(seen.evidence),
        evidence_of=st.just(seen.evidence_of),
        dropped=st.dictionaries(words, st.integers(-1, 10**9), max_size=3),
        probing=st.booleans(),
        probes=st.dictionaries(mark, probes),
        answers=st.dictionaries(mark, st.lists(st.builds(Answers, st.booleans(), spoken), max_size=2)),
        tried=st.dictionaries(mark, st.floats(0, 1e10)),
        check=st.none() | st.builds(SelfCheck, counts, counts, st.dictionaries(st.sampled_from(list(Metric)), numbers)),
        idle=st.dictionaries(mark.map(lambda it: it[0]), st.floats(0, 1e10)),
        requested=st.dictionaries(mark.map(lambda it: it[0]), st.floats(0, 1e10)),
        taken=st.lists(words, max_size=2).map(tuple),
        refused=words,
        rival=words,
    )
    limits = {"rollout": {**sdd["spec"]["rollout"]}, "slo": {"timeToFirstTokenMs": 1500, "timePerOutputTokenMs": 20}}
    limited = {**sdd, "spec": {**sdd["spec"], **data.draw(st.sampled_from([{}, limits]))}}
    fits(limited, objects, data.draw(measured), now)


COMPARED_DOCUMENT = json.loads(Comparison(("a", "b"), "s", "c", True, Policy(5, 5, 1, 120), 60, {"gap": 1}).to_json())


@TRIES
@given(corruptions(COMPARED_DOCUMENT))
def test_what_is_compared_can_be_read_or_it_is_nothing(document):
    found = Comparison.from_json(json.dumps(document))
    if found:
        numbers = [found.block_seconds, *found.dropped.values(), found.policy.max_blocks, found.policy.speed_percent]
        assert all(math.isfinite(number) and number >= 0 for number in numbers)
        assert Comparison.from_json(found.to_json()) == found


def test_both_parts_of_a_record_are_tried(half_way):
    _, objects, _, _ = half_way
    assert {EVIDENCE, COMPARISON, "memory"} <= read_evidence(objects.evidence).keys()
