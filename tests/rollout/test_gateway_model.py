"""Anything may happen in any order: whatever does, traffic through a gateway keeps its invariants, and once it stops
the fleet comes to rest.

What is checked at each write of the operator and each change of the cluster is in `RouteWatch` and `Watchdog`:
no weight without ready capacity, none raised beyond it, no step left before its time, nothing aborted that rises,
nobody else's part of the route touched, nothing deleted that the route names, no rule without weight; and that no
request is lost but by what an event itself broke. Here: that a crash between any two writes changes nothing of what is
written next. A seed that fails is printed with its story.
"""

from random import Random

import pytest

from chaos import Chaos
from fake_gateway import backend, user_route
from fake_kube import FakeKube
from route_watch import RouteWatch
from specfleet.controller.cache import Cache
from specfleet.controller.protocol import WATCHED
from specfleet.plan import Verb, plan
from story import Story

STORIES, LEAST = 116, 20_000  # and passes of the operator in all of them
HAPPENINGS = 40  # in one story
REPLAYED = 0.15  # part of the happenings after which every crash is tried
REST = ("Stable", "CanaryAborted")
GATEWAY = {
    "gateway": {"name": "public", "namespace": "gateways"},
    "cohorts": [{"name": "internal", "header": {"name": "x-audience", "value": "internal"}}],
}
OWN = {"route": {"name": "mine", "rule": "chat"}}
IMAGES = {"name": "images", "backendRefs": [backend("painter", 3)]}
STEPS = (
    [{"weight": 5, "minSeconds": 10}, {"weight": 50, "minSeconds": 10}],
    [{"weight": 30, "minSeconds": 5}],
    [{"weight": 20, "minSeconds": 5}, {"weight": 60, "minSeconds": 5}, {"weight": 90, "minSeconds": 5}],
)
COHORT = {"cohort": "internal", "minSeconds": 5}
ROOM = ((1, 0), (1, 0), (0, 1), (2, 1))  # maxSurge and maxUnavailable


def told(seed):
    """A fleet at the beginning of a story of its own."""
    random = Random(seed)
    surge, unavailable = random.choice(ROOM)
    rollout = {"steps": random.choice(STEPS), "maxSurge": surge, "maxUnavailable": unavailable, "retainSeconds": 30}
    mine = None
    if seed % 3 == 2:
        foreign = random.choice(([], [backend("llama", 60)]))
        ours = backend("qwen", 100 if foreign else 1)
        mine = user_route("mine", [IMAGES, {"name": "chat", "backendRefs": [*foreign, ours]}])
    elif random.random() < 0.3:
        rollout["steps"] = [COHORT, *rollout["steps"]]
    story = Story(
        unavailable=unavailable,
        surge=surge,
        route="mine" if mine else "qwen",
        before=[mine] if mine else [],
        spec={
            "replicas": random.choice((1, 2, 3, 4, 4)),
            "rollout": rollout,
            "traffic": OWN if mine else GATEWAY,
        },
    )
    watch = RouteWatch(story.kube, story.watchdog, story.fleet.gateway)
    story.fleet.pardons = watch.pardons
    return Chaos(story, random, watch, mine)


def cached(kube):
    """What an operator that starts now would know."""
    cache = Cache(sees_gateways=True)
    for resource in WATCHED:
        cache.replace(resource, kube.all(resource.kind))
    return cache


def said(write):
    meta = {key: value for key, value in write.body["metadata"].items() if key != "resourceVersion"}
    body = {**write.body, "metadata": meta}
    body["patch"] = [item for item in body.get("patch", ()) if item["op"] != "test"]
    return write.verb, write.kind, write.name, body


def planned(story, kube, seen):
    cache = cached(kube)
    sdd = cache.sdd(story.key)
    return plan(sdd, cache.objects(story.key, sdd["metadata"]["uid"]), seen, story.clock.now).writes


def next_of(writes):
    """The first that is not of memory, which tells of what the others have done."""
    return next((said(write) for write in writes if write.kind != "ConfigMap"), None)


async def crashed_anywhere(story):
    """The writes of one pass, cut off after each: the next pass of another operator begins with the one after."""
    seen = await story.observe()
    writes = planned(story, story.kube, seen)
    kube = FakeKube(story.clock)
    kube.copy_from(story.kube)
    for number, done in enumerate(writes, start=1):
        await kube.write(story.key.namespace, done)
        if done.kind == "ControllerRevision" and done.verb is Verb.CREATE:
            break  # what is made of it comes first
        if following := next_of(writes[number:]):
            assert next_of(planned(story, kube, seen)) == following, f"after {done.why}"


async def live(chaos):
    story = chaos.story
    await story.run_until_reason("Stable", seconds=300)
    for _ in range(HAPPENINGS):
        await chaos.happen()
        if chaos.random.random() < REPLAYED:
            await crashed_anywhere(story)
        assert story.watchdog.wrongs == []
        assert story.fleet.lost == 0
    chaos.calm()
    await story.run(30)
    chaos.promote()
    await story.run_until(lambda: at_rest(story), seconds=1500)
    assert story.watchdog.wrongs == []
    assert story.fleet.lost == 0


def at_rest(story):
    """One revision has all pods, and the route has one reference to the one Service that selects it."""
    route = story.kube.find("HTTPRoute", "chat", story.route)
    service = story.kube.find("Service", "chat", "qwen")
    if route is None or service is None or story.reason not in REST:
        return False
    ours = [item["name"] for item in route["spec"]["rules"][-1]["backendRefs"] if item["name"].startswith("qwen")]
    alive = [item.name for item in story.revisions if item.alive]
    return ours == ["qwen"] and set(story.weights) == {f"v{story.stable.number}"} and alive == [story.stable.name]


PASSES: dict[int, int] = {}  # by seed


@pytest.mark.parametrize("seed", range(STORIES))
async def test_whatever_happens_the_invariants_hold_and_the_fleet_comes_to_rest(seed):
    chaos = told(seed)
    try:
        await live(chaos)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}\n{chaos.story.text()}") from error
    PASSES[seed] = chaos.story.passes


def test_the_stories_are_long_enough():
    if len(PASSES) < STORIES:
        pytest.skip("not all of them were told")
    assert sum(PASSES.values()) >= LEAST
