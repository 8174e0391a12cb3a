"""The SDD in every state that a story can bring it into, and Lua as Argo CD runs it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from lupa import lua51

from fake_gateway import backend, user_route
from specfleet.api import names
from story import Story

Object = dict[str, Any]
Scenario = Callable[[Callable[..., Story]], Awaitable[None]]

SHORT = {
    "replicas": 2,
    "pod": {"startupSeconds": 60, "drainSeconds": 20},
    "rollout": {
        "steps": [{"weight": 30, "minSeconds": 10}],
        "retainSeconds": 20,
        "analysis": {"scrapeSeconds": 5, "blockSeconds": 10, "maxSeconds": 300},
    },
}
TRAFFIC = {"gateway": {"name": "public", "namespace": "gateways"}, "hostnames": ["qwen.example.com"]}
CONFIG_MAP = Path(__file__).parents[2] / "docs" / "gitops" / "argocd" / "argocd-cm.yaml"
CONDITIONS = ("Ready", "Reconciling", "Stalled")


def longer(story: Story) -> None:
    story.edit("longer", speculation={"numSpeculativeTokens": 5})


async def rested(begin: Callable[..., Story], **how: Any) -> Story:
    story = begin(**how)
    await story.run_until_reason("Stable")
    return story


async def carrying(begin: Callable[..., Story], **how: Any) -> Story:
    story = await rested(begin, **how)
    longer(story)
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)
    await story.run_until_reason("CanaryAnalysing")
    return story


async def ended(story: Story) -> None:
    await story.run_until_reason("CanaryAborted")
    await story.run_until(lambda: not story.revision(2).alive)
    await story.run(30)


async def promoted(begin: Callable[..., Story]) -> None:
    story = await carrying(begin)
    await story.run_until_reason("RetainingOld")
    await story.run_until_reason("Stable")


async def scarce_gpus(begin: Callable[..., Story]) -> None:
    story = await rested(begin, gpus=2, unavailable=1)
    longer(story)
    await story.run_until_reason("WaitingForGPUs")
    await story.run_until(lambda: story.stable.number == 2)


async def paused(begin: Callable[..., Story]) -> None:
    story = await rested(begin)
    story.edit("paused at rest", paused=True)
    await story.run(10)
    longer(story)
    await story.run_until_reason("CanaryPaused")


async def hopeless(begin: Callable[..., Story]) -> None:
    story = await rested(begin, spec={"replicas": 1})
    longer(story)
    await story.run_until_reason("MarginNotResolvable")


async def inconclusive(begin: Callable[..., Story]) -> None:
    few = {"analysis": {"maxSeconds": 10}}
    story = await carrying(begin, spec={**SHORT, "rollout": {**SHORT["rollout"], **few}})
    story.fleet.arrivals = 0.5
    await story.run_until_reason("CanaryInconclusive")
    story.edit("no longer patient", rollout={"onInconclusive": "Abort"})
    await ended(story)


async def no_traffic(begin: Callable[..., Story]) -> None:
    story = await rested(begin)
    story.fleet.arrivals = 0.0
    longer(story)
    await story.run_until_reason("NoTraffic")


async def dark(begin: Callable[..., Story]) -> None:
    story = await carrying(begin)
    story.behave(2, dark=True)
    await story.run_until_reason("MetricsUnreachable")


async def dark_from_the_start(begin: Callable[..., Story]) -> None:
    story = begin()
    story.behave(1, dark=True)
    await story.run_until_reason("ProbeUnknown")


async def refused(begin: Callable[..., Story]) -> None:
    story = await rested(begin)
    for call in range(1, 4):
        story.kube.fail_at(len(story.kube.calls) + call, "403")
    longer(story)
    await story.run_until_reason("ApiError")
    await story.run_until(lambda: story.reason != "ApiError")


async def name_taken(begin: Callable[..., Story]) -> None:
    story = begin()
    meta = {"name": story.key.name, "namespace": story.key.namespace}
    story.kube.put({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": {"app": "other"}}})
    await story.run_until_reason("NameTaken")


async def invalid_from_the_start(begin: Callable[..., Story]) -> None:
    story = begin(spec={"speculation": {"numSpeculativeTokens": -1}})
    await story.run_until_reason("ConfigInvalid")


async def invalid_edits(begin: Callable[..., Story]) -> None:
    story = await carrying(begin)
    story.edit("invalid", speculation={"numSpeculativeTokens": -1})
    await story.run_until(lambda: story.stable.number == 2)
    story.edit("valid", speculation={"numSpeculativeTokens": 5})
    await story.run(10)


async def zero_and_back(begin: Callable[..., Story]) -> None:
    story = await rested(begin)
    story.edit("to zero", replicas=0)
    await story.run(60)
    assert story.reason == "ScaledToZero"
    story.edit("back", replicas=2)
    await story.run_until_reason("Stable")


async def zero_from_the_start(begin: Callable[..., Story]) -> None:
    story = begin(spec={**SHORT, "replicas": 0})
    await story.run_until_reason("ScaledToZero")


async def first_crashes(begin: Callable[..., Story]) -> None:
    story = begin()
    story.behave(1, crash=True)
    await story.run_until_reason("PodsCrashing")


async def first_image_is_missing(begin: Callable[..., Story]) -> None:
    story = begin()
    story.behave(1, start=1000.0)
    await story.run_until(lambda: bool(story.fleet.pods()))
    await story.run(2)
    raw = story.fleet.pods()[0]
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
    container = {**raw["status"]["containerStatuses"][0], "state": waiting}
    story.kube.put({**raw, "status": {**raw["status"], "containerStatuses": [container]}})
    await story.run_until_reason("ImageUnavailable")


async def stable_dies(begin: Callable[..., Story]) -> None:
    story = await carrying(begin)
    story.behave(1, start=300.0)
    for raw in story.fleet.pods(story.revision(1).name):
        story.fleet.restart(raw)
    await story.run_until_reason("StableUnavailable")


async def everything_dies(begin: Callable[..., Story]) -> None:
    story = await rested(begin)
    for raw in story.fleet.pods():
        story.fleet.kill(raw)
    await story.run_until_reason("StableUnavailable")


async def one_pod_dies(begin: Callable[..., Story]) -> None:
    story = await rested(begin)
    story.fleet.kill(story.fleet.pods()[0])
    await story.run_until_reason("WaitingForPods")


async def drains_after_a_clear(begin: Callable[..., Story]) -> None:
    story = await carrying(begin)
    story.edit("back", speculation={"numSpeculativeTokens": 3})
    await story.run_until_reason("Draining")


def bad(how: Mapping[str, Any], early: bool) -> Scenario:
    async def _bad(begin: Callable[..., Story]) -> None:
        story = await (rested(begin) if early else carrying(begin))
        story.behave(2, **how)
        if early:
            longer(story)
        await ended(story)

    _bad.__name__ = "_".join(how)
    return _bad


async def user_aborts(begin: Callable[..., Story]) -> None:
    story = await carrying(begin)
    action = {"type": "Abort", "revision": story.revision(2).name, "id": "1"}
    story.edit("abort", rollout={"action": action})
    await ended(story)


async def by_gateway(begin: Callable[..., Story]) -> Story:
    return await rested(begin, route="qwen", spec={**SHORT, "traffic": TRAFFIC})


async def a_gateway_comes_and_goes(begin: Callable[..., Story]) -> None:
    story = await by_gateway(begin)
    story.kube.remove("Gateway", "gateways", "public")
    longer(story)
    await story.run_until_reason("GatewayNotFound")


async def a_gateway_stands_still(begin: Callable[..., Story]) -> None:
    story = await by_gateway(begin)
    story.fleet.gateway.frozen = True
    longer(story)
    await story.run_until_reason("RouteNotAccepted")


async def a_gateway_cannot_use_the_canary(begin: Callable[..., Story]) -> None:
    story = await by_gateway(begin)
    longer(story)
    await story.run_until(lambda: len(story.revisions) == 2)
    story.fleet.gateway.unresolved = {story.revision(2).name}
    await story.run_until_reason("RouteRefsNotResolved")


async def a_gateway_ignores_the_weights(begin: Callable[..., Story]) -> None:
    story = await by_gateway(begin)
    story.fleet.gateway.ignores = True
    longer(story)
    await story.run_until_reason("SplitNotHonoured")


async def the_canary_has_no_endpoints(begin: Callable[..., Story]) -> None:
    story = await by_gateway(begin)
    stable = story.stable.name

    def lose(event: str, raw: Object) -> None:
        name = raw["metadata"]["name"]
        if raw["kind"] == "EndpointSlice" and event != "DELETED" and name not in ("qwen", stable):
            story.kube.remove("EndpointSlice", story.key.namespace, name)

    story.kube.watches.append(lose)
    longer(story)
    await story.run_until_reason("EndpointsNotReady")


async def someone_rewrites_the_route(begin: Callable[..., Story]) -> None:
    story = await by_gateway(begin)
    longer(story)
    await story.run_until(lambda: story.weights.get("v2", 0) > 0)

    while story.reason != "RouteContested":
        live = story.kube.find("HTTPRoute", story.key.namespace, "qwen")
        assert live is not None
        (rule,) = live["spec"]["rules"]
        rest = [{**rule, "backendRefs": [{**rule["backendRefs"][0], "weight": 1}]}]
        if len(rule["backendRefs"]) > 1:
            story.kube.managed({**live, "spec": {**live["spec"], "rules": rest}}, "argocd-controller")
        await story.run(5)


async def someone_else_has_the_hostname(begin: Callable[..., Story]) -> None:
    story = await by_gateway(begin)
    meta = {"name": "elder", "namespace": "other"}
    story.kube.put({**story.sdd, "metadata": meta})
    elder = story.kube.find(names.KIND, "other", "elder")
    assert elder is not None
    story.kube.put({**elder, "metadata": {**elder["metadata"], "creationTimestamp": "2020-01-01T00:00:00Z"}})
    longer(story)
    await story.run_until_reason("RouteConflict")


async def the_users_route_lacks_our_backend(begin: Callable[..., Story]) -> None:
    story = await rested(begin)
    story.edit("a route", traffic={"route": {"name": "mine"}})
    await story.run_until_reason("RouteNotFound")
    story.kube.put(user_route("mine", [{"backendRefs": [backend("other")]}]))
    await story.run_until_reason("RouteUnusable")


SCENARIOS: tuple[Scenario, ...] = (
    promoted,
    scarce_gpus,
    paused,
    hopeless,
    inconclusive,
    no_traffic,
    dark,
    dark_from_the_start,
    refused,
    name_taken,
    invalid_from_the_start,
    invalid_edits,
    zero_and_back,
    zero_from_the_start,
    first_crashes,
    first_image_is_missing,
    stable_dies,
    everything_dies,
    one_pod_dies,
    drains_after_a_clear,
    a_gateway_comes_and_goes,
    a_gateway_stands_still,
    a_gateway_cannot_use_the_canary,
    a_gateway_ignores_the_weights,
    the_canary_has_no_endpoints,
    someone_rewrites_the_route,
    someone_else_has_the_hostname,
    the_users_route_lacks_our_backend,
    bad({"crash": True}, early=True),
    bad({"garbage": True}, early=True),
    bad({"accept": 0.0}, early=True),
    bad({"start": 3600.0}, early=True),
    bad({"pace": 1.5}, early=True),
    bad({"errors": 0.2}, early=False),
    user_aborts,
)


def _state(sdd: Object) -> tuple[Any, ...]:
    said = {item["type"]: (item["status"], item["reason"]) for item in sdd["status"]["conditions"]}
    stale = sdd["status"]["observedGeneration"] != sdd["metadata"]["generation"]
    return (*(said.get(type) for type in CONDITIONS), bool(sdd["spec"].get("paused")), stale)


async def _record(scenario: Scenario) -> list[Object]:
    found: dict[tuple[Any, ...], Object] = {}
    last: list[Object] = []

    def begin(**how: Any) -> Story:
        story = Story(**{"spec": SHORT, **how})
        for number in (1, 2):
            story.behave(number, start=3.0)
        story.kube.watches.append(watch)
        return story

    def watch(event: str, raw: Object) -> None:
        if raw["kind"] == names.KIND and raw["metadata"]["name"] == "qwen" and raw.get("status"):
            found.setdefault(_state(raw), raw)
            last[:] = [raw]

    await scenario(begin)
    return [*found.values(), *last]


@pytest.fixture(scope="session")
def recorded() -> Mapping[str, list[Object]]:
    """SDDs by scenario: one for each difference in a condition's status or reason, in `paused`, or in being stale; and
    how it ended."""
    return {scenario.__name__: asyncio.run(_record(scenario)) for scenario in SCENARIOS}


class ArgoLua:
    """Runs a script as Argo CD does without `useOpenLibs`: Lua 5.1 with base and table functions, `obj` a global, the
    answer through JSON, in which an empty table is an empty list (argo-cd, util/lua/lua.go)."""

    def run(self, script: str, obj: Object) -> Any:
        """What the script returns for `obj`."""
        lua = lua51.LuaRuntime(unpack_returned_tuples=True, register_eval=False, register_builtins=False)
        lua.execute('debug.setmetatable("", nil)')
        for library in ("string", "math", "io", "os", "debug", "coroutine", "python"):
            lua.globals()[library] = None
        lua.globals().obj = self._to_lua(lua, obj)
        return self._from_lua(lua.execute(script))

    def act(self, script: str, obj: Object) -> Object:
        """The JSON merge patch that Argo CD sends for an action."""
        return _merge_patch(obj, _unemptied(self.run(script, obj), obj))

    def _to_lua(self, lua: Any, value: Any) -> Any:
        if isinstance(value, Mapping):
            return lua.table_from({key: self._to_lua(lua, item) for key, item in value.items()})
        if isinstance(value, list | tuple):
            return lua.table_from([self._to_lua(lua, item) for item in value])
        return value

    def _from_lua(self, value: Any) -> Any:
        if lua51.lua_type(value) != "table":
            return value
        items = dict(value.items())
        if set(items) == set(range(1, len(items) + 1)):
            return [self._from_lua(items[index]) for index in sorted(items)]
        return {key: self._from_lua(item) for key, item in items.items()}


def _unemptied(new: Any, old: Any) -> Any:
    """An empty list where an empty map was is that map again, as Argo CD's cleanReturnedObj has it."""
    if isinstance(new, dict) and isinstance(old, dict):
        return {key: _unemptied(value, old.get(key)) for key, value in new.items()}
    if isinstance(new, list) and isinstance(old, list | tuple):
        return [_unemptied(*pair) for pair in zip(new, old, strict=False)] + new[len(old) :]
    return old if new == [] and old == {} else new


def _merge_patch(old: Any, new: Any) -> Any:
    """The RFC 7386 patch from one object to the other."""
    patch: Object = {key: None for key in old if key not in new}
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(key), dict):
            if inner := _merge_patch(old[key], value):
                patch[key] = inner
        elif key not in old or old[key] != value:
            patch[key] = value
    return patch


@pytest.fixture(scope="session")
def argo() -> ArgoLua:
    """Lua as Argo CD runs it."""
    return ArgoLua()


@pytest.fixture(scope="session")
def scripts() -> Mapping[str, str]:
    """The Lua that users install, by name, taken out of the ready ConfigMap."""
    data = yaml.safe_load(CONFIG_MAP.read_text())["data"]
    actions = yaml.safe_load(data[f"resource.customizations.actions.{names.GROUP}_{names.KIND}"])
    found = {item["name"]: item["action.lua"] for item in actions["definitions"]}
    health = data[f"resource.customizations.health.{names.GROUP}_{names.KIND}"]
    return {"health": health, "discovery": actions["discovery.lua"], **found}
