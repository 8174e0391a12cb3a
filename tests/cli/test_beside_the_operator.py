"""What the plugin says of a fleet that the operator's own passes move: the same verdict, and nothing too early."""

from specfleet.api import names
from specfleet.cli.case import Case, Stage, case, demands
from specfleet.cli.explain import explained
from specfleet.cli.orders import Order, Refusal, retry, undo
from specfleet.cli.record import record
from specfleet.cli.settle import settling
from specfleet.rollout.judged import metric
from story import Story

KINDS = ("ControllerRevision", "Deployment", "Pod")


def owned(story):
    return [item for kind in KINDS for item in story.kube.all(kind)]


def told(story) -> Case:
    configmap = story.kube.find("ConfigMap", "chat", names.evidence_name("qwen"))
    return case(story.sdd, owned(story), "", record(story.sdd, configmap))


async def settled(story: Story) -> Story:
    await story.run_until(lambda: settling(story.sdd).settled is not None)
    return story


async def at_rest() -> Story:
    story = await settled(Story())
    assert settling(story.sdd).settled
    assert story.reason == "Stable"
    assert told(story).stage is Stage.REST
    return story


async def test_it_judges_as_the_operator_does_and_what_it_asks_for_is_what_moves_it(text):
    story = await at_rest()
    story.edit("3 -> 5", speculation={"numSpeculativeTokens": 5})
    assert settling(story.sdd).settled is None  # the status is still of the generation before
    judged, waited = 0, None
    while settling(story.sdd).settled is None:
        this = told(story)
        assert this.record.trouble == ""
        written = story.status.get("metrics", [])
        metrics = [{key: value for key, value in item.items() if key != "resolvable"} for item in written]
        if this.verdict and [item.blocks for item in this.verdict.metrics] == [item["blocks"] for item in metrics]:
            judged += 1  # a status may tell of the look before: figures are not rewritten at every one
            assert [metric(item, this.left(item) or None) for item in this.verdict.metrics] == metrics
            assert this.dropped == story.status.get("dropped", "")
        asked = list(demands(this, story.clock.now))
        met = bool(asked) and all(item.met for item in asked)
        assert not (met and waited == this.record.memory.rollout), "all that was asked for was there, and nothing moved"
        waited = this.record.memory.rollout if met else None
        assert text(explained(this, story.clock.now), 80, "ascii")
        await story.run(6)
    assert judged > 5
    assert settling(story.sdd).settled
    promoted = told(story).last(story.stable.name, "Promoted")
    assert story.stable.number == 2
    assert promoted is not None
    assert promoted.message in text(explained(told(story), story.clock.now), 1000)


async def test_an_abort_is_explained_with_its_numbers_and_can_be_retried(text):
    story = await at_rest()
    story.behave(2, pace=1.5)
    story.edit("3 -> 5", speculation={"numSpeculativeTokens": 5})
    await settled(story)
    assert settling(story.sdd).settled is False
    this = told(story)
    assert (this.stage, this.target and this.target.number) == (Stage.ABORTED, 2)
    assert story.revision(2).aborted in text(explained(this, story.clock.now), 1000)
    order = retry(story.sdd, owned(story), "", "id-1")
    assert isinstance(order, Order)
    assert order.patch["spec"]["rollout"]["action"]["revision"] == story.revision(2).name


async def test_undo_is_there_once_something_was_promoted_over_something_else():
    story = await at_rest()
    assert isinstance(undo(story.sdd, owned(story), "", "id-1"), Refusal)
    story.edit("3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.stable.number == 2)
    await settled(story)
    order = undo(story.sdd, owned(story), "", "id-1")
    assert isinstance(order, Order)
    assert story.revision(1).name in order.says


async def test_want_of_gpus_is_explained_by_the_pod_that_waits(text):
    story = Story(gpus=3)
    await story.run_until_reason("WaitingForGPUs")
    written = text(explained(told(story), story.clock.now), 1000)
    assert "nothing to share yet" in written
    assert "Insufficient amd.com/gpu" in written
