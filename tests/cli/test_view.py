"""What a user sees of each state, whole."""

import pytest

from specfleet.cli.fleet import fleet, mark
from specfleet.cli.table import table
from specfleet.cli.tree import view

SCENES = ("at-rest", "first-rollout", "canary", "aborted", "draining", "not-implemented")


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_is_as_recorded(name, scene, now, text, golden):
    resource, owned = scene(name)
    golden(name, text(view(fleet(resource, owned), now)))


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_in_ascii_fits_80_columns(name, scene, now, text, golden):
    resource, owned = scene(name)
    written = text(view(fleet(resource, owned), now), width=80, encoding="ascii")
    assert max(map(len, written.splitlines())) <= 80
    golden(f"{name}-ascii", written)


@pytest.mark.parametrize(("width", "encoding"), [(140, "utf-8"), (80, "ascii")])
def test_several_fleets_are_a_table_with_what_they_wait_for(width, encoding, scene, now, text, golden):
    sdds = [scene(name)[0] for name in ("at-rest", "first-rollout", "canary", "aborted")]
    for index, resource in enumerate(sdds):
        resource["metadata"]["name"] = f"llama-{index}"
    shown = table([fleet(resource) for resource in sdds], sdds, now)
    golden(f"several-{width}", text(shown, width, encoding))


def test_without_status_it_asks_for_the_operator(scene, now, text):
    resource, _ = scene("at-rest")
    written = text(view(fleet({**resource, "status": {}}), now))
    assert "no status yet: is the operator running?" in written


def test_what_could_not_be_read_is_said_and_status_stands_in(scene, now, text):
    resource, _ = scene("canary")
    written = text(view(fleet(resource, (), "pods is forbidden"), now))
    assert "not everything could be read: pods is forbidden" in written
    assert "llama-9d2zx4kv  canary 25%  eagle3 k=5  1/1 ready" in written


def test_pods_are_shown_where_controller_revisions_cannot_be_read(scene, now, text):
    resource, owned = scene("first-rollout")
    pods = [item for item in owned if item["kind"] == "Pod"]
    written = text(view(fleet(resource, pods), now))
    assert "llama-6b7f9c42  first  0/0 ready" in written
    assert "Insufficient amd.com/gpu" in written


def test_an_invalid_spec_is_noted_beside_the_state_of_the_one_in_force(scene, now, text):
    resource, owned = scene("at-rest")
    problem = {"type": "ConfigValid", "status": "False", "message": "spec.replicas: must be at least 0"}
    resource["status"]["conditions"].append(problem)
    assert "not in force: spec.replicas: must be at least 0" in text(view(fleet(resource, owned), now))


def test_the_previous_revision_reads_as_retained_while_it_is_kept(scene):
    resource, owned = scene("draining")
    resource["status"]["reason"] = "RetainingOld"
    assert [branch.role for branch in fleet(resource, owned).branches] == ["stable", "retained"]


def test_long_names_put_the_other_columns_on_a_line_of_their_own(scene, now, text):
    resource, owned = scene("at-rest")
    for item in owned:
        if item["kind"] == "Pod":
            item["metadata"]["name"] = "a-name-of-sixty-characters-" + item["metadata"]["name"] + "-x"
    lines = text(view(fleet(resource, owned), now), width=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("Ready" in line and "4 GPUs" in line and "mi300x-a" in line for line in lines)


def test_a_count_down_is_no_change_but_a_lost_pod_is(scene):
    resource, owned = scene("canary")
    before = mark(fleet(resource, owned))
    assert mark(fleet({**resource, "status": {**resource["status"], "message": "31 s more at 5%"}}, owned)) == before
    assert mark(fleet(resource, owned[:-1])) != before


def test_partitions_are_named_by_their_resource(scene):
    resource, owned = scene("at-rest")
    limits = {"amd.com/cpx_nps4": "2"}
    owned[-1]["spec"]["containers"][0]["resources"] = {"limits": limits, "requests": limits}
    assert fleet(resource, owned).branches[0].pods[-1].gpus == "2 cpx_nps4"


def test_where_a_route_sends_what_is_shown(text, scene, now):
    resource, owned = scene("canary")
    resource["status"]["routing"] = ["HTTPRoute llama: x-audience: internal -> llama-9", "HTTPRoute llama: llama 100%"]
    written = text(view(fleet(resource, owned), now))
    assert "HTTPRoute llama: x-audience: internal -> llama-9\n" in written
    assert "HTTPRoute llama: llama 100%\n" in written
