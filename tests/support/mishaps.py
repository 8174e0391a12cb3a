"""Scenarios told again and again, each time with something else going wrong at one call to the API server."""

from fake_gateway import backend, user_route
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
GATEWAY = {"gateway": {"name": "public", "namespace": "gateways"}}
MINE = {"route": {"name": "mine", "rule": "chat"}}
RULES = [
    {"name": "images", "backendRefs": [backend("painter", 3)]},
    {"name": "chat", "backendRefs": [backend("qwen", 1)]},
]
#: How clients come: by the Service, by the operator's own route, by the user's; or no accelerator is free.
WAYS = {
    "service": {},
    "gateway": {"route": "qwen", "spec": {**SHORT, "traffic": GATEWAY}},
    "user": {"route": "mine", "before": [user_route("mine", RULES)], "spec": {**SHORT, "traffic": MINE}},
    "scarce": {"gpus": {"gpu-a": 2}, "unavailable": 1},
}
HOWS = ("crash-before", "crash-after", "409", "429", "500", "timeout", "lost")
REPORTS = ("status", "Event", "ConfigMap")  # two calls of three: each is failed in fewer ways, to save time


def hows(number, call):
    """The ways in which a call is made to fail; over the calls every way has its turn."""
    turns = HOWS[number % len(HOWS) :] + HOWS[: number % len(HOWS)]
    if call.verb in REPORTS or call.kind in REPORTS:
        return {"crash-after", turns[0]}
    return {"crash-before", "crash-after", "409", turns[0]}


async def at_rest(story):
    await story.run_until_reason("Stable")
    await story.run(65)


async def carrying(story):
    story.edit("longer", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)


class Beginnings:
    """Stories in which what comes before a scenario has happened: the same every time, and told only once."""

    def __init__(self):
        self._told = {}

    async def begin(self, before, lag=0.0, way="service"):
        if (way, before) not in self._told:
            story = self._told[way, before] = Story(**{"spec": SHORT, **WAYS[way]})
            for number in (1, 2, 3):
                story.behave(number, start=3.0)
            for part in before:
                await part(story)
        return self._told[way, before].fork(lag)


async def promoted(story):
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")


async def aborted(story):
    story.behave(2, "errors", start=3.0, errors=0.3)
    await story.run_until(lambda: bool(story.revision(2).aborted))
    await story.run_until(lambda: not story.revision(2).alive)


async def ends_alike(scenario, begin, end, number, how):
    """Tell the scenario anew, and let that call go wrong: what it comes to must be `end`."""
    story = await begin()
    told = await end_of(scenario, story, {number: how})
    assert story.kube.calls[number - 1].how == how
    assert told == end, f"{how} at call {number}, {story.kube.calls[number - 1]}:\n{story.text()}"


async def end_of(scenario, story, mishaps=None):
    """Tell the scenario; `mishaps` says what goes wrong, by the number of the call. Returns what it comes to."""
    for call, how in (mishaps or {}).items():
        story.kube.fail_at(call, how)
    await scenario(story)
    await story.run(75)
    assert story.watchdog.wrongs == [], f"{mishaps}\n{story.text()}"
    assert story.fleet.lost == 0, f"{mishaps}\n{story.text()}"
    return story.outcome()
