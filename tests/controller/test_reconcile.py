"""Passes against an API server in memory: what is created, what is left alone, what is made again, and how they end."""

from story import Story


async def at_rest(**how):
    story = Story(**how)
    await story.run_until_reason("Stable", seconds=300)
    await story.run(65)
    return story


async def in_canary():
    story = await at_rest()
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until_reason("CanaryAnalysing")
    return story


def writes(story, since=0):
    return [call for call in story.kube.calls[since:] if call.verb in ("create", "apply", "patch", "delete", "status")]


def foreign(kind, api_version, name, **fields):
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "chat"}, **fields}


async def test_a_fleet_at_rest_writes_nothing():
    story = await at_rest()
    before = len(story.kube.calls)
    await story.run(1800)
    assert writes(story, before) == []


async def test_only_the_documented_objects_are_owned_and_all_by_the_resource():
    story = await in_canary()
    v1, v2 = (revision.name for revision in story.revisions)
    uid = story.sdd["metadata"]["uid"]
    kinds = ("ControllerRevision", "Deployment", "Service", "PodDisruptionBudget", "ConfigMap")
    owned = [raw for kind in kinds for raw in story.kube.all(kind)]
    expected = [
        *(("ControllerRevision", name) for name in sorted((v1, v2))),
        *(("Deployment", name) for name in sorted((v1, v2))),
        *(("Service", name) for name in sorted(("qwen", v1, v2))),
        ("PodDisruptionBudget", "qwen"),
        ("ConfigMap", "qwen-evidence"),
    ]
    assert [(raw["kind"], raw["metadata"]["name"]) for raw in owned] == expected
    assert {raw["metadata"]["ownerReferences"][0]["uid"] for raw in owned} == {uid}
    assert story.sdd["metadata"].keys().isdisjoint({"finalizers", "annotations", "labels"})


async def test_a_foreign_service_of_the_same_name_is_left_alone_until_it_goes():
    story = Story()
    theirs = story.kube.put(foreign("Service", "v1", "qwen", spec={"selector": {"app": "theirs"}}))
    await story.run(120)
    assert story.reason == "NameTaken"
    assert "Service/qwen" in story.status["message"]
    assert {item["type"]: item["status"] for item in story.status["conditions"]}["Stalled"] == "True"
    assert story.kube.find("Service", "chat", "qwen") == theirs
    assert story.kube.all("Deployment") == []
    story.kube.remove("Service", "chat", "qwen")
    await story.run_until_reason("Stable", seconds=200)


async def test_a_name_that_is_taken_gives_one_event_of_each_kind_at_most():
    story = Story()
    story.kube.put(foreign("Service", "v1", "qwen", spec={"selector": {"app": "theirs"}}))
    await story.run(600)
    reasons = [raw["reason"] for raw in story.kube.all("Event")]
    assert len(reasons) == len(set(reasons))


async def test_an_object_with_our_label_and_another_owner_is_not_ours():
    story = await at_rest()
    labels = {"specfleet.dev/deployment": "qwen", "specfleet.dev/revision": "qwen-theirs"}
    theirs = foreign("Deployment", "apps/v1", "qwen-theirs", spec={"replicas": 0})
    theirs["metadata"]["labels"] = labels
    theirs = story.kube.put(theirs)
    await story.run(120)
    assert story.kube.find("Deployment", "chat", "qwen-theirs") == theirs
    assert story.reason == "Stable"


async def test_what_someone_deletes_is_made_again():
    story = await at_rest()
    name = story.stable.name
    for kind, lost in (
        ("Service", "qwen"),
        ("Service", name),
        ("PodDisruptionBudget", "qwen"),
        ("ConfigMap", "qwen-evidence"),
    ):
        before = story.outcome()
        story.kube.remove(kind, "chat", lost)
        await story.run(30)
        assert story.outcome() == before, f"{kind} {lost}\n{story.text()}"


async def test_the_service_deleted_during_a_canary_is_made_again_as_it_was():
    story = await in_canary()
    story.watchdog.excuse()
    story.kube.remove("Service", "chat", "qwen")
    await story.run(1)
    assert story.weights == {"v1": 80, "v2": 20}
    assert story.watchdog.wrongs == []


async def test_a_deployment_that_someone_scales_is_scaled_back():
    story = await at_rest()
    live = story.kube.find("Deployment", "chat", story.stable.name)
    story.watchdog.surge = 5
    story.kube.put({**live, "spec": {**live["spec"], "replicas": 7}})
    await story.run(60)
    assert story.stable.wanted == 4
    assert story.fleet.lost == 0


async def test_without_its_controller_revision_a_fleet_serves_on_and_gets_a_new_one():
    story = await at_rest()
    pods = {raw["metadata"]["uid"] for raw in story.fleet.pods()}
    story.kube.remove("ControllerRevision", "chat", story.stable.name)
    await story.run(60)
    assert story.reason == "Stable"
    assert story.stable.promoted == 1
    assert {raw["metadata"]["uid"] for raw in story.fleet.pods()} == pods
    assert story.watchdog.wrongs == []


async def test_a_deleted_resource_leaves_to_the_garbage_collector_and_is_forgotten():
    story = await in_canary()
    before = len(story.kube.calls)
    story.kube.remove("SpecDecodeDeployment", "chat", "qwen")
    await story.run(120)
    assert writes(story, before) == []
    assert story.kube.all("Deployment") == []
    assert story.fleet.pods() == []


async def test_a_resource_on_its_way_out_gets_no_more_writes():
    story = await in_canary()
    sdd = story.sdd
    story.kube.put({**sdd, "metadata": {**sdd["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    before = len(story.kube.calls)
    await story.run(120)
    assert writes(story, before) == []


async def test_in_a_terminating_namespace_nothing_is_created_and_nothing_is_an_error():
    story = await in_canary()
    story.kube.terminating.add("chat")
    for kind, api in (("Service", "qwen"), ("ConfigMap", "qwen-evidence")):
        story.kube.remove(kind, "chat", api)
    await story.run(120)
    refused = [line for line in story.transcript.lines if " fails " in line]
    assert refused == []
    creates = [call for call in story.kube.calls if call.verb == "create"]
    assert story.kube.all("Service")
    assert len([call for call in creates if call.name in ("qwen", "qwen-evidence")]) <= 3 + 2


async def test_a_resource_made_again_under_the_same_name_takes_nothing_of_the_old_one():
    story = await in_canary()
    sdd = story.sdd
    story.kube.remove("SpecDecodeDeployment", "chat", "qwen")
    meta = {"name": "qwen", "namespace": "chat"}
    story.kube.put({**{key: sdd[key] for key in ("apiVersion", "kind", "spec")}, "metadata": meta})
    await story.run_until_reason("Stable", seconds=300)
    uid = story.sdd["metadata"]["uid"]
    for kind in ("ControllerRevision", "Deployment", "Service", "ConfigMap"):
        assert {raw["metadata"]["ownerReferences"][0]["uid"] for raw in story.kube.all(kind)} == {uid}


async def test_what_the_api_server_refuses_is_told_in_the_status_and_tried_again():
    story = Story()
    story.kube.quotas["Deployment"] = "no-workloads"
    await story.run(60)
    assert story.reason == "ApiError"
    assert "exceeded quota: no-workloads" in story.status["message"]
    del story.kube.quotas["Deployment"]
    await story.run_until_reason("Stable", seconds=200)


async def test_an_event_is_told_though_the_status_cannot_be_written():
    story = await at_rest()
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    story.kube.broken["status"] = "500"
    await story.run(30)
    assert [call.how for call in story.kube.calls if call.verb == "status"][-1] == "500"
    told = [raw["reason"] for raw in story.kube.all("Event")]
    assert told.count("CanaryStarted") == 1


async def test_looks_after_conflicts_become_rarer_and_usual_again_after_the_last():
    story = await at_rest()
    name, before = story.stable.name, len(story.kube.calls)
    story.kube.remove("Service", "chat", name)
    story.kube.broken["create"] = "409"
    await story.run(60)
    assert 6 < len(story.kube.calls) - before < 16
    story.kube.spare()
    await story.run(15)
    assert story.kube.find("Service", "chat", name)
    assert story.reason == "Stable"
    assert story._reconciler.conflicts == {}
