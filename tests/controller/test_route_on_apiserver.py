"""Routes on a real API server: what it stores, what our JSON patch may do, and who it says has written the rules."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from apiserver import define, serve
from deployed import SPEC
from harness.controlplane import ControlPlane
from harness.errors import HarnessError
from harness.gatewaybins import ensure_gateway_crds
from specfleet.api import names
from specfleet.api.traffic import Traffic
from specfleet.controller.kube import KubeClient
from specfleet.controller.protocol import HTTP_ROUTE, ApiError, Conflict, Missing
from specfleet.plan import Verb, Write
from specfleet.resources.owned import differs
from specfleet.resources.route import Backend, Cohort, http_route, patch
from specfleet.rollout.routing import through_route
from specfleet.rollout.world import Objects

pytestmark = pytest.mark.apiserver
Object = dict[str, Any]
NAMESPACE = "routes"
CRD = Path(__file__).parents[2] / "crds" / "specfleet.dev_specdecodedeployments.yaml"
SDD: Object = {  # the API server adds a uid: what belongs to nobody is removed
    "apiVersion": names.API_VERSION,
    "kind": names.KIND,
    "metadata": {"name": "qwen", "namespace": NAMESPACE},
    "spec": SPEC,
}
CANARY = "qwen-6mgrsm2j"
GATEWAY = {"name": "public", "namespace": "gateways"}
INTERNAL = {"name": "internal", "header": {"name": "x-audience", "value": "internal"}}
FULL = Traffic.model_validate(
    {"gateway": {**GATEWAY, "sectionName": "https"}, "hostnames": ["qwen.example.com"], "cohorts": [INTERNAL]}
)
BARE = Traffic.model_validate({"gateway": {"name": "public"}, "requestTimeout": "1h30m"})
BY_ROUTE = Traffic.model_validate({"route": {"name": "mine", "rule": "chat"}})

FILTER = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-team", "value": "chat"}]}}
CHAT: Object = {
    "name": "chat",
    "matches": [{"path": {"type": "PathPrefix", "value": "/v1"}}],
    "filters": [FILTER],
    "backendRefs": [
        {"name": "llama", "port": 8000, "weight": 300},
        {"name": "qwen", "port": 8000, "filters": [FILTER], "weight": 100},
        {"name": "mixtral", "port": 8000},
    ],
    "timeouts": {"request": "0s"},
}
IMAGES: Object = {
    "name": "images",
    "matches": [{"path": {"type": "PathPrefix", "value": "/images"}, "headers": [{"name": "a", "value": "b"}]}],
    "backendRefs": [{"name": "painter", "port": 80}],
}


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with HTTPRoutes and a namespace for them."""
    (crd,) = ensure_gateway_crds().glob("*_httproutes.yaml")
    serve(control_plane, crd)
    define(control_plane, CRD)
    control_plane.kubectl("create", "namespace", NAMESPACE)
    made = control_plane.kubectl("create", "-f", "-", "-o", "json", input=json.dumps(SDD))
    SDD["metadata"]["uid"] = json.loads(made)["metadata"]["uid"]
    yield control_plane
    control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture
async def kube(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubeClient]:
    """Our client, with no route there."""
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig))
    plane.kubectl("delete", "httproutes", "--all", "-n", NAMESPACE)
    async with KubeClient((NAMESPACE,), lambda: True) as client:
        yield client


def manifest(**spec: Any) -> str:
    """The user's own route, as it lies in Git."""
    kind = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute"}
    whole = {"parentRefs": [GATEWAY], "hostnames": ["qwen.example.com"], "rules": [IMAGES, CHAT], **spec}
    meta = {"name": "mine", "namespace": NAMESPACE}
    return json.dumps({**kind, "metadata": meta, "spec": {key: value for key, value in whole.items() if value}})


async def mine(kube: KubeClient) -> Object:
    return await kube.get(HTTP_ROUTE, NAMESPACE, "mine")


def change(live: Object, *wanted: Backend, risky: bool = True) -> Write:
    """Our references in the rule `chat`."""
    ours = frozenset({"qwen", CANARY})
    meta = {"name": "mine", "uid": live["metadata"]["uid"]}
    kind = {"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": meta}
    return Write(Verb.JSON_PATCH, {**kind, "patch": patch(live, 1, ours, wanted, risky)}, "a test")


def edit(plane: ControlPlane, what: list[Object]) -> None:
    """Somebody's kubectl patch."""
    plane.kubectl("patch", "httproute", "mine", "-n", NAMESPACE, "--type=json", "-p", json.dumps(what))


SPLIT = (Backend("qwen", 95), Backend(CANARY, 5))


# Our own route


@pytest.mark.parametrize(
    ("traffic", "backends", "cohorts"),
    [
        (FULL, [Backend("qwen", 1)], [Cohort(FULL.cohorts[0].header, CANARY)]),
        (FULL, SPLIT, []),
        (BARE, [Backend(CANARY, 100)], []),
    ],
    ids=["cohort", "split", "bare"],
)
async def test_our_own_route_is_stored_as_it_is_sent(
    kube: KubeClient, traffic: Traffic, backends: list[Backend], cohorts: list[Cohort]
) -> None:
    desired = http_route(SDD, traffic, backends, cohorts)
    made = await kube.write(NAMESPACE, Write(Verb.CREATE, desired, "a test"))
    assert made["spec"] == desired["spec"], "no default is missing from what we write"
    assert differs(desired, made) is None

    again = Write(
        Verb.APPLY, {**desired, "metadata": {**desired["metadata"], "uid": made["metadata"]["uid"]}}, "a test"
    )
    applied = await kube.write(NAMESPACE, again)
    assert (applied["spec"], applied["metadata"]["generation"]) == (made["spec"], 1)
    assert (await kube.write(NAMESPACE, again))["metadata"] == applied["metadata"]


async def test_hostnames_that_are_no_longer_wanted_go(kube: KubeClient) -> None:
    before = http_route(SDD, FULL, SPLIT)
    made = await kube.write(NAMESPACE, Write(Verb.CREATE, before, "a test"))
    after = http_route(SDD, FULL.model_copy(update={"hostnames": ()}), SPLIT)
    assert differs(after, made) == "spec.hostnames: ['qwen.example.com'] -> []"
    applied = await kube.write(NAMESPACE, Write(Verb.APPLY, after, "a test"))
    assert not applied["spec"]["hostnames"]
    assert differs(after, applied) is None


async def test_an_apply_for_a_route_that_was_made_anew_is_refused(kube: KubeClient) -> None:
    desired = http_route(SDD, FULL, SPLIT)
    await kube.write(NAMESPACE, Write(Verb.CREATE, desired, "a test"))
    other = {**desired, "metadata": {**desired["metadata"], "uid": "6f1c2a4e-0000-4000-8000-00000000000f"}}
    with pytest.raises(ApiError, match=r"metadata\.uid"):
        await kube.write(NAMESPACE, Write(Verb.APPLY, other, "a test"))


# The user's own route


async def test_only_our_references_in_the_one_rule_change(kube: KubeClient, plane: ControlPlane) -> None:
    plane.kubectl("apply", "-f", "-", input=manifest())
    before = await mine(kube)

    during = await kube.write(NAMESPACE, change(before, *SPLIT))

    llama, qwen, canary, mixtral = during["spec"]["rules"][1].pop("backendRefs")
    first, ours, last = before["spec"]["rules"][1]["backendRefs"]
    assert json.dumps([llama, mixtral]) == json.dumps([first, last])
    assert json.dumps([qwen, canary]) == json.dumps([{**ours, "weight": 95}, {**ours, "name": CANARY, "weight": 5}])
    rest = json.loads(json.dumps(before["spec"]))
    del rest["rules"][1]["backendRefs"]
    assert json.dumps(during["spec"]) == json.dumps(rest), "byte for byte"

    after = await kube.write(NAMESPACE, change(await mine(kube), Backend("qwen", 100)))
    assert json.dumps(after["spec"]) == json.dumps(before["spec"])


async def test_the_same_weights_again_are_no_new_generation(kube: KubeClient, plane: ControlPlane) -> None:
    plane.kubectl("apply", "-f", "-", input=manifest())
    written = await kube.write(NAMESPACE, change(await mine(kube), *SPLIT))
    same = Write(Verb.JSON_PATCH, {**change(written, *SPLIT).body}, "a test")
    assert (await kube.write(NAMESPACE, same))["metadata"] == written["metadata"]


async def test_a_raise_is_refused_once_anything_has_changed_and_a_fall_is_not(
    kube: KubeClient, plane: ControlPlane
) -> None:
    plane.kubectl("apply", "-f", "-", input=manifest())
    read = await mine(kube)
    edit(plane, [{"op": "add", "path": "/spec/hostnames/-", "value": "other.example.com"}])
    with pytest.raises(Conflict):
        await kube.write(NAMESPACE, change(read, *SPLIT))
    assert (await mine(kube))["spec"]["rules"] == read["spec"]["rules"]
    written = await kube.write(NAMESPACE, change(read, Backend("qwen", 50), risky=False))
    assert [item["weight"] for item in written["spec"]["rules"][1]["backendRefs"]] == [300, 50, 1]


MOVED = {
    "another reference before ours": [
        {"op": "add", "path": "/spec/rules/1/backendRefs/0", "value": {"name": "new", "port": 80}}
    ],
    "ours has gone": [{"op": "remove", "path": "/spec/rules/1/backendRefs/1"}],
    "another rule before": [
        {"op": "add", "path": "/spec/rules/0", "value": {"name": "first", "backendRefs": [{"name": "x", "port": 80}]}}
    ],
    "the rule has another name": [{"op": "replace", "path": "/spec/rules/1/name", "value": "talk"}],
}


@pytest.mark.parametrize("moved", MOVED)
async def test_even_a_fall_is_refused_where_our_references_are_not_where_they_were(
    kube: KubeClient, plane: ControlPlane, moved: str
) -> None:
    plane.kubectl("apply", "-f", "-", input=manifest())
    read = await mine(kube)
    edit(plane, MOVED[moved])
    now = await mine(kube)
    with pytest.raises(Conflict):
        await kube.write(NAMESPACE, change(read, Backend("qwen", 50), risky=False))
    assert await mine(kube) == now


async def test_a_route_that_was_made_anew_is_a_conflict_and_none_is_missing(
    kube: KubeClient, plane: ControlPlane
) -> None:
    plane.kubectl("apply", "-f", "-", input=manifest())
    read = await mine(kube)
    plane.kubectl("delete", "httproute", "mine", "-n", NAMESPACE)
    with pytest.raises(Missing):
        await kube.write(NAMESPACE, change(read, Backend("qwen", 50), risky=False))
    plane.kubectl("apply", "-f", "-", input=manifest())
    with pytest.raises(Conflict):
        await kube.write(NAMESPACE, change(read, Backend("qwen", 50), risky=False))


@pytest.mark.parametrize("weight", [-1, 1_000_001])
async def test_a_weight_that_is_none_is_an_error_with_its_field(
    kube: KubeClient, plane: ControlPlane, weight: int
) -> None:
    plane.kubectl("apply", "-f", "-", input=manifest())
    read = await mine(kube)
    with pytest.raises(ApiError, match=r"422: .*spec\.rules\[1\]\.backendRefs\[1\]\.weight") as refusal:
        await kube.write(NAMESPACE, change(read, Backend("qwen", weight)))
    assert not isinstance(refusal.value, Conflict)
    assert await mine(kube) == read


async def test_the_example_of_a_users_route_is_valid(kube: KubeClient, plane: ControlPlane) -> None:
    path = Path(__file__).parents[2] / "docs" / "examples" / "routes" / "chat.yaml"
    plane.kubectl("create", "-n", NAMESPACE, "--dry-run=server", "--validate=strict", "-f", str(path))


# Who has written the rules


async def writer(kube: KubeClient, traffic: Traffic = BY_ROUTE, name: str = "mine") -> str:
    """The other manager, as a pass reads it from the live route."""
    live = await kube.get(HTTP_ROUTE, NAMESPACE, name)
    return through_route(SDD, traffic, Objects(routes={name: live}), {}, "").writer


def client_side(plane: ControlPlane) -> None:
    plane.kubectl("apply", "-f", "-", input=manifest())


def server_side(plane: ControlPlane) -> None:
    plane.kubectl("apply", "--server-side", "--force-conflicts", "--field-manager=gitops", "-f", "-", input=manifest())


def by_patch(plane: ControlPlane) -> None:
    edit(plane, [{"op": "replace", "path": "/spec/rules/1/backendRefs/1/weight", "value": 77}])


def by_edit(plane: ControlPlane) -> None:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KUBE_EDITOR", "sed -i s,/images,/pictures,")
        plane.kubectl("edit", "httproute", "mine", "-n", NAMESPACE)


WRITERS = {
    client_side: "kubectl-client-side-apply",
    server_side: "gitops",
    by_patch: "kubectl-patch",
    by_edit: "kubectl-edit",
}


@pytest.mark.parametrize("made", [client_side, server_side], ids=lambda made: str(made.__name__))
async def test_a_users_route_is_theirs_until_our_first_patch(kube: KubeClient, plane: ControlPlane, made: Any) -> None:
    made(plane)
    assert await writer(kube) == WRITERS[made]
    await kube.write(NAMESPACE, change(await mine(kube), *SPLIT))
    assert await writer(kube) == ""


@pytest.mark.parametrize("by", WRITERS, ids=lambda by: str(by.__name__))
async def test_whoever_writes_the_rules_after_us_is_named(kube: KubeClient, plane: ControlPlane, by: Any) -> None:
    client_side(plane)
    await kube.write(NAMESPACE, change(await mine(kube), *SPLIT))
    by(plane)
    assert await writer(kube) == WRITERS[by]
    by_us = change(await mine(kube), Backend("qwen", 60), Backend(CANARY, 40))
    await kube.write(NAMESPACE, by_us)
    assert await writer(kube) == ""


async def test_our_own_route_names_nobody_else_and_a_gateways_status_is_no_rule(
    kube: KubeClient, plane: ControlPlane
) -> None:
    desired = http_route(SDD, FULL, SPLIT)
    made = await kube.write(NAMESPACE, Write(Verb.CREATE, desired, "a test"))
    assert await writer(kube, FULL, "qwen") == ""
    uid = {**desired["metadata"], "uid": made["metadata"]["uid"]}
    flipped = http_route(SDD, FULL, [Backend(CANARY, 1)])
    await kube.write(NAMESPACE, Write(Verb.APPLY, {**flipped, "metadata": uid}, "a test"))
    said = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": 2}
    accepted = {**said, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    parents = [{"parentRef": GATEWAY, "controllerName": "example.com/gateway", "conditions": [accepted]}]
    status = json.dumps({"status": {"parents": parents}})
    plane.kubectl("patch", "httproute", "qwen", "-n", NAMESPACE, "--subresource=status", "--type=merge", "-p", status)
    assert await writer(kube, FULL, "qwen") == ""
    weight = [{"op": "replace", "path": "/spec/rules/0/backendRefs/0/weight", "value": 2}]
    plane.kubectl("patch", "httproute", "qwen", "-n", NAMESPACE, "--type=json", "-p", json.dumps(weight))
    assert await writer(kube, FULL, "qwen") == "kubectl-patch"
    await kube.write(NAMESPACE, Write(Verb.APPLY, {**flipped, "metadata": uid}, "a test"))
    assert await writer(kube, FULL, "qwen") == "", "a forced apply takes the rules back"


# How Git and the operator get on


async def test_an_apply_without_rules_leaves_ours_alone_once_they_are_ours(
    kube: KubeClient, plane: ControlPlane
) -> None:
    server_side(plane)
    ours = await kube.write(NAMESPACE, change(await mine(kube), *SPLIT))
    bare = manifest(rules=None, hostnames=["new.example.com"])
    plane.kubectl("apply", "--server-side", "--field-manager=gitops", "-f", "-", input=bare)
    after = await mine(kube)
    assert after["spec"]["rules"] == ours["spec"]["rules"]
    assert after["spec"]["hostnames"] == ["new.example.com"]
    assert await writer(kube) == ""


async def test_an_unchanged_apply_on_the_clients_side_takes_the_weights_back(
    kube: KubeClient, plane: ControlPlane
) -> None:
    client_side(plane)
    before = await mine(kube)
    await kube.write(NAMESPACE, change(before, *SPLIT))
    client_side(plane)
    assert (await mine(kube))["spec"] == before["spec"]
    assert names.FIELD_MANAGER not in await writer(kube)


async def test_an_apply_without_rules_before_they_are_ours_takes_them_away(
    kube: KubeClient, plane: ControlPlane
) -> None:
    server_side(plane)
    plane.kubectl("apply", "--server-side", "--field-manager=gitops", "-f", "-", input=manifest(rules=None))
    (rule,) = (await mine(kube))["spec"]["rules"]
    assert rule == {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}]}, "the API server's default, to nobody"


async def test_an_unchanged_apply_on_the_servers_side_is_a_conflict(kube: KubeClient, plane: ControlPlane) -> None:
    server_side(plane)
    await kube.write(NAMESPACE, change(await mine(kube), *SPLIT))
    with pytest.raises(HarnessError, match=r"conflict with \"specfleet\".*: \.spec\.rules"):
        plane.kubectl("apply", "--server-side", "--field-manager=gitops", "-f", "-", input=manifest())
