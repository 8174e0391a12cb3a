"""What is kept of a rollout that is over: enough to show its decision again, and nothing that anybody judges by."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.controller.telemetry import Unreachable
from specfleet.judgement.judge import Policy, judge
from specfleet.resources.evidence import COMPARISON, EVIDENCE, read_evidence
from specfleet.rollout.comparison import LEFT_OUT, Comparison, left_out
from specfleet.telemetry.evidence import from_json


def stored(story):
    return read_evidence(story.kube.find("ConfigMap", "chat", "qwen-evidence"))


def seen_again(story):
    """The verdict of the record, from nothing but the record."""
    data = stored(story)
    about = Comparison.from_json(data[COMPARISON])
    return judge(from_json(data[EVIDENCE]), about.comparable, about.policy)


async def aborted(at_rest):
    story = await at_rest()
    story.behave(2, pace=1.5)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until_reason("CanaryAborted")
    return story


async def test_an_abort_can_be_judged_again_from_what_is_stored(at_rest):
    story = await aborted(at_rest)
    await story.run(300)
    message = story.revision(2).aborted.removeprefix("CanaryRegressed: ")
    assert seen_again(story).regression.message == message
    about = Comparison.from_json(stored(story)[COMPARISON])
    assert (about.uids, about.canary) == ((story.revision(1).uid, story.revision(2).uid), story.revision(2).name)


async def test_a_proof_can_be_judged_again_after_the_spec_has_got_other_margins(at_rest):
    story = await at_rest()
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.stable.number == 2)
    await story.run(60)
    story.edit("margins", rollout={"analysis": {"margins": {"speedPercent": 1}}})
    await story.run(60)
    proof = next(item for item in story.status["decisions"] if item["reason"] == "CanaryProven")
    assert seen_again(story).proven
    assert seen_again(story).metrics[0].message in proof["message"]


@pytest.mark.parametrize("how", ["edit", "retry"])
async def test_the_next_rollout_begins_with_nothing_though_it_be_of_the_same_revisions(how, at_rest):
    story = await aborted(at_rest)
    assert EVIDENCE in stored(story)
    if how == "edit":
        story.edit("numSpeculativeTokens 5 -> 4", speculation={"numSpeculativeTokens": 4})
    else:
        action = {"type": "Retry", "revision": story.revision(2).name, "id": "again"}
        story.edit("retry", rollout={"action": action})
    await story.run_until_reason("CanaryStarting", seconds=120)
    await story.run(5)  # "a new revision is made" comes before its rollout
    assert (await story.observe()).evidence.blocks == ()
    assert EVIDENCE not in stored(story)


async def test_a_restart_at_rest_judges_nothing_by_what_is_stored(at_rest):
    story = await aborted(at_rest)
    story.restart("the operator dies")
    await story.run(120)
    seen = await story.observe()
    assert (seen.evidence.blocks, seen.evidence_of, seen.dropped) == ((), None, {})
    assert "metrics" not in story.status
    assert EVIDENCE in stored(story)


async def test_a_rest_at_zero_replicas_keeps_what_was_gathered(at_rest):
    story = await at_rest()
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: EVIDENCE in stored(story) and len(from_json(stored(story)[EVIDENCE]).blocks) > 2)
    story.edit("to zero", replicas=0)
    await story.run_until_reason("ScaledToZero")
    await story.run(30)
    assert len(from_json(stored(story)[EVIDENCE]).blocks) > 2
    assert COMPARISON in stored(story)


async def test_what_is_left_out_is_told_with_the_blocks_and_outlives_a_restart(at_rest):
    story = await at_rest()
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: EVIDENCE in stored(story) and len(from_json(stored(story)[EVIDENCE]).blocks) > 2)
    before = dict((await story.observe()).dropped)
    assert before["warm-up"] > 0
    assert left_out(before) == story.status["dropped"]
    assert Comparison.from_json(stored(story)[COMPARISON]).dropped == before
    blocks = (await story.observe()).evidence.seen
    story.restart("the operator dies")
    await story.run_until(lambda: "cut off" in story.status.get("dropped", ""), seconds=120)
    after = (await story.observe()).dropped
    assert after["away"] == 1
    assert all(after[why] >= times for why, times in before.items())
    assert (await story.observe()).evidence.seen >= blocks


async def test_why_no_block_comes_is_told_once_in_a_blocks_time(at_rest):
    story = await at_rest()
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until_reason("CanaryAnalysing")
    plain, mine = story.fleet.scrape, story.revision(1).name

    async def scrape(pod):
        if pod.name.startswith(mine):
            raise Unreachable("timed out")
        return await plain(pod)

    story.telemetry._scrape = scrape
    await story.run(60)
    calls = len(story.kube.calls)
    before = (await story.observe()).dropped.get("unpaired", 0)
    await story.run(300)
    writes = [call for call in story.kube.calls[calls:] if call.kind == "ConfigMap"]
    length = story.sdd["spec"]["rollout"]["analysis"]["blockSeconds"]
    assert 2 <= len(writes) <= 300 / length + 1
    assert (await story.observe()).dropped["unpaired"] > before
    assert "without both arms" in story.status["dropped"]


margins = st.floats(0, 50)
compared = st.builds(
    Comparison, st.tuples(st.text(max_size=9), st.text(max_size=9)), st.text(max_size=9), st.text(max_size=9),
    st.booleans(), st.builds(Policy, margins, margins, margins, max_blocks=st.integers(1, 9999)), st.integers(1, 3600),
    st.dictionaries(st.sampled_from(sorted(LEFT_OUT)), st.integers(0, 10**9)),
)  # fmt: skip


@given(compared)
def test_what_is_compared_comes_back_as_it_was_and_is_small(about):
    assert Comparison.from_json(about.to_json()) == about
    assert len(about.to_json()) < 1000


@given(st.text(max_size=40) | st.sampled_from(['{"policy": 3}', "[]", "null", "1", "[" * 9999]))
def test_anything_else_is_none(text):
    assert Comparison.from_json(text) is None


def test_margins_that_this_version_does_not_know_are_passed_over():
    about = Comparison(("a", "b"), "s", "c", True, Policy(5, 5, 1, max_blocks=120), 60)
    newer = about.to_json().replace('"alpha"', '"later_points":2,"alpha"')
    assert Comparison.from_json(newer) == about


def test_what_was_left_out_is_told_in_words_in_one_order():
    assert (
        left_out({"gap": 1, "warm-up": 12, "missed": 0, "unheard-of": 3})
        == "12 scrapes of pods that warmed up, 1 tick after a pause"
    )
    assert left_out({}) == ""
