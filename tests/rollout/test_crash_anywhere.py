"""A crash or a refusal at every single call to the API server: the end is always the one that it would have been."""

from functools import partial
from random import Random

import pytest

from mishaps import HOWS, REPORTS, Beginnings, aborted, at_rest, carrying, end_of, ends_alike, hows, promoted


async def first(story):
    await story.run_until_reason("Stable")


async def begun_and_promoted(story):
    await carrying(story)
    await promoted(story)


async def replaced(story):
    name = story.revision(2).name
    story.edit("shorter", speculation={"numSpeculativeTokens": 2})
    await story.run_until(lambda: story.newest not in (name, story.stable.name))
    story.edit("promote it", rollout={"action": {"type": "Promote", "revision": story.newest, "id": "1"}})
    await story.run_until(lambda: story.stable.promoted == 2)
    await story.run_until_reason("Stable")


#: What has happened before a scenario begins.
BEFORE = {first: (), begun_and_promoted: (at_rest,), aborted: (at_rest, carrying), replaced: (at_rest, carrying)}


@pytest.fixture(scope="module")
def begin():
    beginnings = Beginnings()

    async def _begin(scenario, lag=0.0, way="service"):
        return await beginnings.begin(BEFORE[scenario], lag, way)

    return _begin


@pytest.mark.parametrize("scenario", [first, begun_and_promoted, aborted, replaced])
async def test_a_failure_at_any_call_changes_nothing_in_the_end(scenario, begin):
    story = await begin(scenario)
    end = await end_of(scenario, story)
    for number, call in enumerate(story.kube.calls, start=1):
        for how in sorted(hows(number, call)):
            await ends_alike(scenario, partial(begin, scenario), end, number, how)


THROUGH = [(begun_and_promoted, "gateway"), (aborted, "gateway"), (replaced, "gateway"), (begun_and_promoted, "user")]


@pytest.mark.parametrize(("scenario", "way"), THROUGH)
async def test_nor_does_one_on_the_way_through_a_gateway(scenario, way, begin):
    """Calls for the route fail in every way; others in fewer, and reports, which a gateway does not change, in none."""
    story = await begin(scenario, way=way)
    end = await end_of(scenario, story)
    references = story.kube.find("HTTPRoute", "chat", story.route)["spec"]["rules"][-1]["backendRefs"]
    assert [item["name"] for item in references] == ["qwen"]
    for number, call in enumerate(story.kube.calls, start=1):
        if call.verb in REPORTS or call.kind in REPORTS:
            continue
        turns = {"crash-after", HOWS[number % len(HOWS)]}
        for how in HOWS if call.kind == "HTTPRoute" else sorted(turns):
            await ends_alike(scenario, partial(begin, scenario, way=way), end, number, how)


@pytest.mark.parametrize("seed", range(24))
async def test_many_failures_and_late_news_change_nothing_in_the_end(seed, begin):
    random = Random(seed)
    scenario = (begun_and_promoted, aborted, replaced)[seed % 3]
    way = ("gateway", "service", "user")[seed % 7 % 3]
    end = await end_of(scenario, await begin(scenario, way=way))
    mishaps = {call: random.choice(HOWS) for call in range(1, 400) if random.random() < 0.2}
    story = await begin(scenario, lag=random.choice((0.0, 1.0, 4.0)), way=way)
    told = await end_of(scenario, story, mishaps)
    assert any(call.how for call in story.kube.calls)
    assert told == end, story.text()
