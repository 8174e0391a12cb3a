"""The cache: the newest of every object, one resource's objects, and what a LIST takes away."""

import pytest

from specfleet.controller.cache import Cache, Key, key_of
from specfleet.controller.protocol import RESOURCES

KEY = Key("chat", "qwen")
LABELS = {"specfleet.dev/deployment": "qwen"}


def made(kind, name, version="1", uid="u", owner="sdd-uid", labels=LABELS):
    owners = [{"uid": owner, "controller": True}] if owner else []
    meta = {"name": name, "namespace": "chat", "uid": uid, "resourceVersion": version, "labels": labels}
    return {"kind": kind, "metadata": {**meta, "ownerReferences": owners}}


def version_of(cache, kind="Deployment", name="qwen-a"):
    found = {"Deployment": cache.objects(KEY, "sdd-uid").deployments}[kind]
    return found[name]["metadata"]["resourceVersion"]


def test_an_object_belongs_to_the_resource_that_its_label_names():
    assert key_of(made("Deployment", "qwen-a")) == KEY
    assert key_of(made("SpecDecodeDeployment", "qwen", labels={})) == KEY
    assert key_of(made("Deployment", "other", labels={})) is None


def test_older_news_of_the_same_object_changes_nothing():
    cache = Cache()
    cache.put(made("Deployment", "qwen-a", "100"))
    cache.put(made("Deployment", "qwen-a", "99"))
    assert version_of(cache) == "100"


def test_an_object_made_anew_replaces_the_old_one_whatever_its_version():
    cache = Cache()
    cache.put(made("Deployment", "qwen-a", "100"))
    cache.put(made("Deployment", "qwen-a", "7", uid="other"))
    assert version_of(cache) == "7"


def test_late_news_of_a_deletion_does_not_take_the_object_made_anew():
    cache = Cache()
    cache.put(made("Deployment", "qwen-a", "100", uid="new"))
    assert cache.drop("Deployment", "chat", "qwen-a", "old") == set()
    assert cache.drop("Deployment", "chat", "qwen-a", "new") == {KEY}
    assert cache.objects(KEY, "sdd-uid").deployments == {}


def test_a_list_takes_away_what_it_lacks_and_says_whom_that_concerns():
    cache = Cache()
    cache.put(made("Deployment", "qwen-a"))
    cache.put(made("Service", "qwen-a"))
    assert cache.replace(RESOURCES["Deployment"], [made("Deployment", "qwen-b")]) == {KEY}
    objects = cache.objects(KEY, "sdd-uid")
    assert (list(objects.deployments), list(objects.services)) == (["qwen-b"], ["qwen-a"])


def test_what_is_heard_of_while_a_list_is_under_way_is_newer_than_the_list():
    cache = Cache()
    cache.put(made("Deployment", "deleted"))
    cache.put(made("Deployment", "changed", "5"))
    with cache.listing() as meanwhile:
        snapshot = [made("Deployment", "deleted"), made("Deployment", "changed", "5"), made("Deployment", "missed")]
        cache.drop("Deployment", "chat", "deleted")
        cache.put(made("Deployment", "changed", "6"))
        cache.put(made("Deployment", "new", "7"))
        cache.replace(RESOURCES["Deployment"], snapshot, meanwhile)
    found = {
        name: raw["metadata"]["resourceVersion"] for name, raw in cache.objects(KEY, "sdd-uid").deployments.items()
    }
    assert found == {"changed": "6", "new": "7", "missed": "1"}
    assert cache.replace(RESOURCES["Deployment"], []) == {KEY}  # nothing was heard of since
    assert cache.objects(KEY, "sdd-uid").deployments == {}


def test_only_what_the_resource_controls_is_its_own_and_pods_go_by_their_label():
    cache = Cache()
    cache.put(made("Service", "ours"))
    cache.put(made("Service", "theirs", owner="someone"))
    cache.put(made("Service", "nobodys", owner=""))
    cache.put(made("Pod", "pod", owner="a-replica-set"))
    objects = cache.objects(KEY, "sdd-uid")
    assert list(objects.services) == ["ours"]
    assert [pod["metadata"]["name"] for pod in objects.pods] == ["pod"]


def test_a_pod_that_is_relabelled_belongs_to_whom_it_names_now_and_may_go():
    cache, other = Cache(), Key("chat", "debug")
    cache.put(made("Pod", "qwen-a-1", "100", owner=None))
    moved = made("Pod", "qwen-a-1", "101", owner=None, labels={"specfleet.dev/deployment": "debug"})
    assert cache.put(moved) == {KEY, other}
    assert (cache.objects(KEY, "sdd-uid").pods, len(cache.objects(other, "u").pods)) == ((), 1)
    assert cache.put(made("Pod", "qwen-a-1", "100", owner=None)) == {KEY}  # old news
    assert cache.objects(KEY, "sdd-uid").pods == ()
    assert cache.drop("Pod", "chat", "qwen-a-1") == {other}


def test_what_a_resource_controls_stays_its_own_under_another_label_and_may_go():
    cache = Cache()
    cache.put(made("Deployment", "qwen-a", "100"))
    cache.put(made("Deployment", "qwen-a", "101", labels={"specfleet.dev/deployment": "debug"}))
    assert version_of(cache) == "101"
    assert cache.drop("Deployment", "chat", "qwen-a") == {KEY, Key("chat", "debug")}
    assert cache.objects(KEY, "sdd-uid").deployments == {}


def test_evidence_is_the_one_config_map_of_that_name():
    cache = Cache()
    cache.put(made("ConfigMap", "qwen-other"))
    assert cache.objects(KEY, "sdd-uid").evidence is None
    evidence = made("ConfigMap", "qwen-evidence")
    cache.put(evidence)
    assert cache.objects(KEY, "sdd-uid").evidence == evidence


def test_the_resources_are_listed_in_order():
    cache = Cache()
    for name in ("b", "a"):
        cache.put(made("SpecDecodeDeployment", name, labels={}))
    assert cache.keys() == [Key("chat", "a"), Key("chat", "b")]
    assert cache.sdd(Key("chat", "c")) is None


def test_a_list_tells_only_of_what_has_changed():
    cache = Cache()
    known, changed = made("Deployment", "qwen-a", "100"), made("Deployment", "llama-b", "100")
    assert cache.replace(RESOURCES["Deployment"], [known, changed])
    assert cache.replace(RESOURCES["Deployment"], [known, changed]) == set()
    assert len(cache.replace(RESOURCES["Deployment"], [known, made("Deployment", "llama-b", "101")])) == 1


def test_what_nobody_reads_is_not_kept():
    cache = Cache()
    raw = made("Deployment", "qwen-a", "100")
    (key,) = cache.put({**raw, "metadata": {**raw["metadata"], "managedFields": [{"manager": "kubectl"}]}})
    (kept,) = cache._objects.values()
    assert "managedFields" not in kept["metadata"], key


def fleet(name, created="2026-01-01T00:00:00Z", **traffic):
    meta = {"name": name, "namespace": "chat", "uid": name, "resourceVersion": "1", "creationTimestamp": created}
    return {"kind": "SpecDecodeDeployment", "metadata": meta, "spec": {"traffic": traffic}}


CHAT, TALK, ANY = ({"name": "mine", **part} for part in ({"rule": "chat"}, {"rule": "talk"}, {}))
PUBLIC, TLS = (
    {"name": "public", "namespace": "gateways"},
    {"name": "public", "namespace": "gateways", "sectionName": "tls"},
)


@pytest.mark.parametrize(
    ("mine", "theirs", "rivals"),
    [
        ({"route": CHAT}, {"route": CHAT}, True),
        ({"route": CHAT}, {"route": TALK}, False),
        ({"route": CHAT}, {"route": ANY}, True),
        ({"route": CHAT}, {"route": {**CHAT, "name": "other"}}, False),
        ({"route": CHAT}, {"gateway": PUBLIC}, False),
        ({"gateway": PUBLIC, "hostnames": ["a", "b"]}, {"gateway": PUBLIC, "hostnames": ["b"]}, True),
        ({"gateway": PUBLIC, "hostnames": ["a"]}, {"gateway": PUBLIC, "hostnames": ["b"]}, False),
        ({"gateway": PUBLIC}, {"gateway": PUBLIC}, True),
        ({"gateway": PUBLIC, "hostnames": ["a"]}, {"gateway": TLS, "hostnames": ["a"]}, True),
        ({"gateway": {**PUBLIC, "name": "else"}, "hostnames": ["a"]}, {"gateway": PUBLIC, "hostnames": ["a"]}, False),
        ({}, {"route": CHAT}, False),
        ({"route": CHAT}, {"route": "nonsense", "hostnames": 3}, False),
    ],
)
def test_of_two_that_want_the_same_requests_the_younger_is_told_of_the_older(mine, theirs, rivals):
    cache = Cache()
    cache.put(fleet("qwen", "2026-01-01T00:00:02Z", **mine))
    cache.put(fleet("llama", "2026-01-01T00:00:01Z", **theirs))
    assert cache.rival(KEY) == ("chat/llama" if rivals else "")
    assert cache.rival(Key("chat", "llama")) == ""


def test_made_in_the_same_second_the_lesser_name_is_the_older():
    cache = Cache()
    for name in ("qwen", "llama"):
        cache.put(fleet(name, route=CHAT))
    assert cache.rival(KEY) == "chat/llama"
    cache.drop("SpecDecodeDeployment", "chat", "llama")
    assert cache.rival(KEY) == ""
