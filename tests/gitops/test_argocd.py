"""What Argo CD shows of an SDD, and what its buttons do, in every state that a story reaches."""

import os
from pathlib import Path

import pytest

from specfleet.api.reasons import Reason
from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.api.validation import parse

FOLDER = Path(__file__).parents[2] / "docs" / "gitops" / "argocd"
ACTIONS = ("promote", "abort", "pause", "resume")
LESSER = {Reason.NOT_IMPLEMENTED, Reason.CONFIG_ACCEPTED, Reason.TEMPLATE_CHANGED, Reason.FINDINGS}  # never of Ready
#: No story reaches them; made from a recorded one.
UNRECORDED = {
    Reason.INSUFFICIENT_OVERLAP,
    Reason.COUNTERS_INCONSISTENT,
    Reason.CANARY_STUCK,
    Reason.CANARY_DOES_NOT_FIT,
}
HEALTH = {
    Reason.STABLE: "Healthy",
    Reason.RETAINING_OLD: "Healthy",
    Reason.SCALED_TO_ZERO: "Healthy",
    Reason.FIRST_ROLLOUT: "Progressing",
    Reason.CANARY_STARTING: "Progressing",
    Reason.CANARY_PROBING: "Progressing",
    Reason.CANARY_DWELLING: "Progressing",
    Reason.CANARY_ANALYSING: "Progressing",
    Reason.CANARY_PROMOTING: "Progressing",
    Reason.DRAINING: "Progressing",
    Reason.WAITING_FOR_PODS: "Progressing",
    Reason.WAITING_FOR_GPUS: "Progressing",
    Reason.NO_TRAFFIC: "Progressing",
    Reason.INSUFFICIENT_OVERLAP: "Progressing",
    Reason.COUNTERS_INCONSISTENT: "Progressing",
    Reason.METRICS_UNREACHABLE: "Progressing",
    Reason.PROBE_UNKNOWN: "Progressing",
    Reason.API_ERROR: "Progressing",
    Reason.ROUTE_NOT_ACCEPTED: "Progressing",
    Reason.ROUTE_REFS_NOT_RESOLVED: "Progressing",
    Reason.ENDPOINTS_NOT_READY: "Progressing",
    Reason.SPLIT_NOT_HONOURED: "Progressing",
    Reason.CANARY_PAUSED: "Suspended",
    Reason.CANARY_INCONCLUSIVE: "Suspended",
    Reason.MARGIN_NOT_RESOLVABLE: "Suspended",
    Reason.CANARY_DEAD: "Degraded",
    Reason.CANARY_INCORRECT: "Degraded",
    Reason.CANARY_DOES_NOT_FIT: "Degraded",
    Reason.CANARY_NOT_ACCEPTING: "Degraded",
    Reason.CANARY_ERRORING: "Degraded",
    Reason.CANARY_STUCK: "Degraded",
    Reason.CANARY_REGRESSED: "Degraded",
    Reason.CANARY_INCONCLUSIVE_TOO_LONG: "Degraded",
    Reason.PROGRESS_DEADLINE_EXCEEDED: "Degraded",
    Reason.USER_ABORTED: "Degraded",
    Reason.CANARY_ABORTED: "Degraded",
    Reason.PODS_CRASHING: "Degraded",
    Reason.IMAGE_UNAVAILABLE: "Degraded",
    Reason.STABLE_UNAVAILABLE: "Degraded",
    Reason.CONFIG_INVALID: "Degraded",
    Reason.NAME_TAKEN: "Degraded",
    Reason.GATEWAY_NOT_FOUND: "Degraded",
    Reason.ROUTE_NOT_FOUND: "Degraded",
    Reason.ROUTE_UNUSABLE: "Degraded",
    Reason.ROUTE_CONFLICT: "Degraded",
    Reason.ROUTE_CONTESTED: "Degraded",
}


def conditions(sdd):
    return {item["type"]: item for item in sdd["status"]["conditions"]}


def stale(sdd):
    return sdd["status"]["observedGeneration"] != sdd["metadata"]["generation"]


def every(recorded):
    return [sdd for found in recorded.values() for sdd in found]


def in_state(recorded, reason, scenario="", **spec):
    """A recorded SDD that is current and has this Ready reason."""
    pool = recorded[scenario] if scenario else every(recorded)
    fits = (sdd for sdd in pool if spec.items() <= sdd["spec"].items() and not stale(sdd))
    return next(sdd for sdd in fits if conditions(sdd)["Ready"]["reason"] == reason)


def with_reason(sdd, reason):
    said = [{**item, "reason": str(reason)} for item in sdd["status"]["conditions"]]
    return {**sdd, "status": {**sdd["status"], "conditions": said, "reason": str(reason)}}


def test_every_reason_of_ready_is_recorded_and_has_a_health(recorded):
    possible = {reason for reason in Reason if reason.kind != "event"} - LESSER
    assert set(HEALTH) == possible
    assert {conditions(sdd)["Ready"]["reason"] for sdd in every(recorded)} == possible - UNRECORDED


def test_health_in_every_recorded_state(recorded, argo, scripts):
    for sdd in every(recorded):
        said = conditions(sdd)
        expected = HEALTH[Reason(said["Ready"]["reason"])]
        if expected == "Healthy" and sdd["spec"].get("paused"):
            expected = "Suspended"
        if said["Stalled"]["status"] == "True":
            expected = "Degraded"
        if stale(sdd):
            expected = "Progressing"
        assert argo.run(scripts["health"], sdd)["status"] == expected, said


@pytest.mark.parametrize("reason", sorted(UNRECORDED))
def test_health_of_reasons_that_no_story_reaches(reason, recorded, argo, scripts):
    sdd = with_reason(in_state(recorded, Reason.CANARY_ANALYSING), reason)
    assert argo.run(scripts["health"], sdd)["status"] == HEALTH[Reason(reason)]


def test_a_reason_of_a_later_operator_is_judged_by_the_conditions(recorded, argo, scripts):
    at_rest, moving = in_state(recorded, Reason.STABLE), in_state(recorded, Reason.CANARY_ANALYSING)
    assert argo.run(scripts["health"], with_reason(at_rest, "Newer"))["status"] == "Healthy"
    assert argo.run(scripts["health"], with_reason(moving, "Newer"))["status"] == "Progressing"


@pytest.mark.parametrize("status", [{}, {"status": {}}, {"status": {"observedGeneration": 1}}])
def test_what_no_operator_has_looked_at_is_progressing(status, argo, scripts):
    sdd = {"metadata": {"name": "qwen", "generation": 1}, "spec": {}, **status}
    assert argo.run(scripts["health"], sdd)["status"] == "Progressing"
    offered = argo.run(scripts["discovery"], sdd)
    assert all(offered[name]["disabled"] for name in ("promote", "abort", "resume"))


def test_the_message_names_the_canary_its_weight_and_why_it_waits(recorded, argo, scripts):
    sdd = in_state(recorded, Reason.CANARY_ANALYSING)
    message = argo.run(scripts["health"], sdd)["message"]
    assert message.startswith(f"{sdd['status']['canary']['revision']} at 33%: CanaryAnalysing: ")


def test_after_an_abort_the_message_says_why_and_that_stable_serves(recorded, argo, scripts):
    sdd = in_state(recorded, Reason.CANARY_ABORTED, "errors")
    message = argo.run(scripts["health"], sdd)["message"]
    assert message.startswith("CanaryAborted: CanaryErroring: ")
    assert message.endswith(f"({sdd['status']['stable']['revision']} serves)")


def test_an_invalid_edit_is_degraded_from_the_first_look_on_and_says_which_field(recorded, argo, scripts):
    sdd = in_state(recorded, Reason.CONFIG_INVALID, "invalid_edits", speculation={**SPECULATION, **INVALID})
    health = argo.run(scripts["health"], sdd)
    assert health["status"] == "Degraded"
    assert "numSpeculativeTokens" in health["message"]


SPECULATION = {
    "method": "eagle3",
    "draft": {"source": {"huggingFace": {"repo": "RedHatAI/Qwen3-8B-speculator.eagle3"}}},
}
INVALID = {"numSpeculativeTokens": -1}


def test_a_fleet_that_wakes_from_zero_is_not_degraded(recorded, argo, scripts):
    waking = in_state(recorded, Reason.WAITING_FOR_PODS, "zero_and_back")
    assert conditions(waking)["Ready"]["status"] == "False"
    assert argo.run(scripts["health"], waking)["status"] == "Progressing"
    health = {argo.run(scripts["health"], sdd)["status"] for sdd in recorded["zero_and_back"]}
    assert health == {"Healthy", "Progressing"}


def test_every_action_is_offered_exactly_where_it_has_an_effect(recorded, argo, scripts):
    for sdd in every(recorded):
        offered = argo.run(scripts["discovery"], sdd)
        assert set(offered) == set(ACTIONS)
        enabled = {name for name, how in offered.items() if not how["disabled"]}
        heard = not stale(sdd) and conditions(sdd)["ConfigValid"]["status"] == "True"
        canary, paused = "canary" in sdd["status"], bool(sdd["spec"].get("paused"))
        promoting = sdd["status"]["reason"] == "CanaryPromoting"
        expected = {
            "promote": canary and heard and not promoting,
            "abort": canary and heard,
            "pause": heard and not paused,
            "resume": paused,
        }
        assert enabled == {name for name, wanted in expected.items() if wanted}, sdd["status"]


@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_changes_its_field_and_nothing_else(action, recorded, argo, scripts):
    for sdd in every(recorded):
        patch = argo.act(scripts[action], sdd)
        if action in ("promote", "abort"):
            canary = sdd["status"].get("canary", {}).get("revision")
            id = f"argocd-{action}-{sdd['metadata']['resourceVersion']}"
            order = {"type": action.capitalize(), "revision": canary, "id": id}
            old = sdd["spec"]["rollout"].get("action", {})
            changed = {key: value for key, value in order.items() if old.get(key) != value}
            assert patch == ({"spec": {"rollout": {"action": changed}}} if canary else {})
        else:
            wanted = action == "pause"
            assert patch == ({} if sdd["spec"].get("paused") is wanted else {"spec": {"paused": wanted}})


def test_a_promotion_is_valid_where_the_spec_says_nothing_of_a_rollout(recorded, argo, scripts):
    sdd = in_state(recorded, Reason.CANARY_ANALYSING)
    bare = {**sdd, "spec": {key: value for key, value in sdd["spec"].items() if key != "rollout"}}
    patch = argo.act(scripts["promote"], bare)
    spec = parse({**bare, "spec": {**bare["spec"], **patch["spec"]}})
    assert isinstance(spec, SpecDecodeDeploymentSpec)
    assert spec.rollout.action is not None
    assert spec.rollout.action.type == "Promote"


def test_empty_maps_survive_the_way_through_lua(recorded, argo, scripts):
    sdd = in_state(recorded, Reason.STABLE, "promoted")
    odd = {**sdd, "spec": {**sdd["spec"], "slo": {}, "engine": {"args": [], "env": []}}}
    assert argo.act(scripts["pause"], odd) == {"spec": {"paused": True}}


def test_the_ready_config_map_holds_the_scripts_beside_it():
    path = FOLDER / "argocd-cm.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(rendered())
    assert path.read_text() == rendered()


def rendered():
    def lua(name, spaces):
        return "".join(
            f"{' ' * spaces}{line}\n" if line else "\n" for line in (FOLDER / f"{name}.lua").read_text().splitlines()
        )

    actions = "".join(f"      - name: {name}\n        action.lua: |\n{lua(name, 10)}" for name in ACTIONS)
    return (
        "# Health and actions of SpecDecodeDeployments for Argo CD, to be merged into its own ConfigMap:\n"
        "#   kubectl -n argocd patch configmap argocd-cm --type merge --patch-file argocd-cm.yaml\n"
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: argocd-cm\n  namespace: argocd\ndata:\n"
        f"  resource.customizations.health.specfleet.dev_SpecDecodeDeployment: |\n{lua('health', 4)}"
        f"  resource.customizations.actions.specfleet.dev_SpecDecodeDeployment: |\n"
        f"    discovery.lua: |\n{lua('discovery', 6)}    definitions:\n{actions}"
    )
