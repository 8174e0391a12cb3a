"""A failure at any call to the API server, in what happens to a fleet beside a promotion: the end is the same."""

from functools import partial

import pytest

from mishaps import HOWS, Beginnings, aborted, at_rest, carrying, end_of, ends_alike, promoted

COHORT = {
    "traffic": {
        "gateway": {"name": "public", "namespace": "gateways"},
        "cohorts": [{"name": "internal", "header": {"name": "x-audience", "value": "internal"}}],
    },
    "rollout": {"steps": [{"cohort": "internal", "minSeconds": 0}, {"weight": 30, "minSeconds": 0}]},
}


def order(story, kind, number):
    action = {"type": kind, "revision": story.revision(number).name, "id": kind}
    story.edit(kind, rollout={"action": action})


async def failed(story):
    await aborted(story)
    story.behave(2, start=3.0)


async def undone(story):
    order(story, "Undo", 2)
    await story.run_until(lambda: story.stable.number == 1)
    await story.run_until(lambda: not story.revision(2).alive)


async def retried(story):
    order(story, "Retry", 2)
    await promoted(story)


async def withdrawn(story):
    order(story, "Abort", 2)
    await story.run_until(lambda: bool(story.revision(2).aborted))
    await story.run_until(lambda: not story.revision(2).alive)


async def paused_and_resumed(story):
    story.edit("pause", paused=True)
    await story.run(60)
    assert story.stable.number == 1
    story.edit("resume", paused=False)
    await promoted(story)


async def scaled_up(story):
    story.edit("replicas 2 -> 4", replicas=4)
    await promoted(story)


async def scaled_to_nothing(story):
    story.edit("replicas 2 -> 0", replicas=0)
    await story.run_until(lambda: not any(revision.pods for revision in story.revisions))


async def after_a_cohort(story):
    story.edit("internal callers first", **COHORT)
    story.fleet.gateway.cohort = 0.3
    await story.run_until_reason("Stable")
    await carrying(story)
    await promoted(story)


async def lent(story):
    """No accelerator is free: stable gives one up."""
    await carrying(story)
    await promoted(story)


#: What has happened before, and by which way clients come.
SCENARIOS = {
    undone: ((at_rest, carrying, promoted), "service"),
    retried: ((at_rest, carrying, failed), "service"),
    withdrawn: ((at_rest, carrying), "service"),
    paused_and_resumed: ((at_rest, carrying), "service"),
    scaled_up: ((at_rest, carrying), "service"),
    scaled_to_nothing: ((at_rest, carrying), "service"),
    after_a_cohort: ((at_rest,), "gateway"),
    lent: ((at_rest,), "scarce"),
}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_a_failure_at_any_call_changes_nothing_in_the_end(scenario):
    before, way = SCENARIOS[scenario]
    begin = partial(Beginnings().begin, before, way=way)
    story = await begin()
    end = await end_of(scenario, story)
    for number in range(1, len(story.kube.calls) + 1):
        await ends_alike(scenario, begin, end, number, HOWS[number % len(HOWS)])
