"""A crash or a refusal at every single call to the API server: the end is always the one that it would have been."""

from random import Random

import pytest

from story import Story

SHORT = {
    "replicas": 2,
    "pod": {"startupSeconds": 60, "drainSeconds": 20},
    "rollout": {
        "steps": [{"weight": 30, "minSeconds": 0}],
        "retainSeconds": 1,
        "analysis": {"scrapeSeconds": 10, "blockSeconds": 10},
    },
}
HOWS = ("crash-before", "crash-after", "409")
OTHERS = ("429", "500", "timeout", "lost")  # each at every fourth call


async def first(story):
    await story.run_until_reason("Stable")


async def promoted(story):
    story.edit("longer", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")


async def aborted(story):
    story.edit("longer", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    story.behave(2, "errors", start=3.0, errors=0.3)
    await story.run_until(lambda: bool(story.revision(2).aborted))
    await story.run_until(lambda: not story.revision(2).alive)


async def replaced(story):
    story.edit("longer", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    name = story.revision(2).name
    story.edit("shorter", speculation={"numSpeculativeTokens": 2})
    await story.run_until(lambda: story.newest not in (name, story.stable.name))
    story.edit("promote it", rollout={"action": {"type": "Promote", "revision": story.newest, "id": "1"}})
    await story.run_until(lambda: story.stable.promoted == 2)
    await story.run_until_reason("Stable")


async def told(scenario, lag=0.0, mishaps=None):
    """The scenario from a fleet at rest on; `mishaps` says what goes wrong, by the number of the call."""
    story = Story(spec=SHORT, lag=lag)
    for number in (1, 2, 3):
        story.behave(number, start=3.0)
    if scenario is not first:
        story = (await _at_rest(story)).fork(lag)
    for call, how in (mishaps or {}).items():
        story.kube.fail_at(call, how)
    await scenario(story)
    await story.run(75)
    assert story.watchdog.wrongs == [], f"{mishaps}\n{story.text()}"
    assert story.fleet.lost == 0, f"{mishaps}\n{story.text()}"
    return story


_rested = []


async def _at_rest(story):
    if not _rested:
        await first(story)
        await story.run(65)
        _rested.append(story)
    return _rested[0]


@pytest.mark.parametrize("scenario", [first, promoted, aborted, replaced])
async def test_a_failure_at_any_call_changes_nothing_in_the_end(scenario):
    story = await told(scenario)
    end, calls = story.outcome(), story.kube.calls
    for number, call in enumerate(calls, start=1):
        others = () if scenario is replaced else (OTHERS[number % len(OTHERS)],)
        for how in (*HOWS, *others):
            again = await told(scenario, mishaps={number: how})
            assert again.kube.calls[number - 1].how == how
            assert again.outcome() == end, f"{how} at call {number}, {call}:\n{again.text()}"


@pytest.mark.parametrize("seed", range(24))
async def test_many_failures_and_late_news_change_nothing_in_the_end(seed):
    random = Random(seed)
    scenario = (promoted, aborted, replaced)[seed % 3]
    end = (await told(scenario)).outcome()
    story = await told(scenario, lag=random.choice((0.0, 1.0, 4.0)), mishaps=_mishaps(random))
    assert any(call.how for call in story.kube.calls)
    assert story.outcome() == end, story.text()


def _mishaps(random):
    return {call: random.choice((*HOWS, *OTHERS)) for call in range(1, 400) if random.random() < 0.2}
