"""promote, abort, retry, undo, pause and resume: what is written, what is refused, what is said."""

import pytest

from specfleet.api import names
from specfleet.cli.orders import Order, Refusal, act, gitops, hold, retry, undo
from specfleet.rollout.revision import identity


@pytest.fixture
def canary(scene):
    return scene("canary")[0]


@pytest.mark.parametrize("type", ["Promote", "Abort"])
def test_an_action_names_the_canary_and_a_new_id(type, canary):
    order = act(canary, type, "id-1")
    assert isinstance(order, Order)
    action = {"type": type, "revision": "llama-9d2zx4kv", "id": "id-1"}
    assert order.patch == {"spec": {"rollout": {"action": action}}}
    assert order.warnings == ()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("at-rest", "llama has no canary to promote: it is Stable (llama-6b7f9c42 serves with 2 pods)"),
        ("first-rollout", "its first revision has not become stable yet (WaitingForGPUs: "),
        ("aborted", "it was aborted already (CanaryRegressed: speed -21.4 %"),
    ],
)
def test_without_a_canary_it_says_what_state_there_is(name, why, scene):
    refusal = act(scene(name)[0], "Promote", "id-1")
    assert isinstance(refusal, Refusal)
    assert why in refusal.says
    assert "\n" not in refusal.says


def test_without_status_it_asks_for_the_operator(canary):
    assert act({**canary, "status": {}}, "Abort", "x") == Refusal("llama has no status yet: is the operator running?")


def test_an_action_in_a_spec_that_is_not_in_force_is_refused(canary):
    canary["status"]["conditions"].append({"type": "ConfigValid", "status": "False", "message": "spec.x: no"})
    refusal = act(canary, "Promote", "id-1")
    assert isinstance(refusal, Refusal)
    assert "spec.x: no" in refusal.says


def test_the_same_order_twice_writes_nothing_but_the_other_one_does(canary):
    action = {"type": "Promote", "revision": "llama-9d2zx4kv", "id": "old"}
    canary["spec"]["rollout"] = {"action": action}
    again = act(canary, "Promote", "new")
    assert again == Order(
        None, "Promote of llama-9d2zx4kv was asked for already (id old); the operator has not honoured it yet"
    )
    canary["status"]["lastHandledAction"] = {"id": "old", "result": "Honoured"}
    assert act(canary, "Promote", "new").says.endswith("the operator is at it")
    assert act(canary, "Abort", "new").patch is not None


def test_an_order_to_an_earlier_canary_does_not_stand_in_the_way(canary):
    canary["spec"]["rollout"] = {"action": {"type": "Promote", "revision": "llama-4c8w7bqd", "id": "old"}}
    assert act(canary, "Promote", "new").patch is not None


def test_it_warns_of_a_pause_of_an_unseen_spec_and_of_git(canary):
    canary["spec"]["paused"] = True
    canary["metadata"] |= {"generation": 8, "labels": {"argocd.argoproj.io/instance": "llama"}}
    warnings = act(canary, "Promote", "id-1").warnings
    assert [any(part in warning for warning in warnings) for part in ("generation 8", "resume llama", "Argo CD")] == [
        True,
        True,
        True,
    ]
    assert not any("resume" in warning for warning in act(canary, "Abort", "id-1").warnings)


@pytest.mark.parametrize("paused", [True, False])
def test_pause_and_resume_write_once(paused, canary):
    canary["spec"]["paused"] = not paused
    assert hold(canary, paused).patch == {"spec": {"paused": paused}}
    canary["spec"]["paused"] = paused
    again = hold(canary, paused)
    assert again.patch is None
    assert "already; nothing was written" in again.says


def test_pause_says_where_the_canary_stays(canary):
    assert hold(canary, True).says == "llama-9d2zx4kv stays at 25% until `resume llama`; guards still act"


def test_a_pause_does_not_hold_a_first_revision(scene):
    assert any("first revision" in warning for warning in hold(scene("first-rollout")[0], True).warnings)


@pytest.mark.parametrize(
    ("where", "key", "owner"),
    [
        ("labels", "argocd.argoproj.io/instance", "Argo CD"),
        ("annotations", "argocd.argoproj.io/tracking-id", "Argo CD"),
        ("labels", "kustomize.toolkit.fluxcd.io/name", "Flux"),
        ("labels", "helm.toolkit.fluxcd.io/name", "Flux"),
    ],
)
def test_gitops_is_known_by_its_marks(where, key, owner, canary):
    assert gitops(canary) == ""
    canary["metadata"][where] = {key: "llama"}
    assert gitops(canary) == owner
    assert hold(canary, True).warnings == (f"managed by {owner}: Git will put spec.paused back; set it there too",)


STABLE, CANARY, OLD = "llama-6b7f9c42", "llama-9d2zx4kv", "llama-4c8w7bqd"


@pytest.fixture
def latched(scene):
    """An aborted canary, whose ControllerRevision knows the spec that made it."""
    resource, owned = scene("aborted")
    resource["spec"] = {"speculation": {"method": "ngram"}}
    noted(owned, CANARY)[names.IDENTITY] = identity(resource["spec"])
    return resource, owned


def noted(owned, revision):
    """The annotations of a ControllerRevision."""
    records = (item["metadata"] for item in owned if item["kind"] == "ControllerRevision")
    return next(meta["annotations"] for meta in records if meta["name"] == revision)


def test_retry_names_the_aborted_revision_of_the_spec(latched):
    order = retry(*latched, "", "id-1")
    assert isinstance(order, Order)
    assert order.patch == {"spec": {"rollout": {"action": {"type": "Retry", "revision": CANARY, "id": "id-1"}}}}
    assert "CanaryRegressed: speed -21.4 %" in order.says


def test_an_earlier_abort_of_another_spec_is_not_retried(latched):
    resource, owned = latched
    resource["spec"] = {"speculation": {"method": "suffix"}}
    refusal = retry(resource, owned, "", "id-1")
    assert isinstance(refusal, Refusal)
    assert refusal.says.startswith("llama has nothing to retry: no abort holds its spec, it is CanaryAborted (")


def test_a_retry_in_the_spec_is_repeated_only_once_it_was_honoured(latched):
    resource, owned = latched
    resource["spec"]["rollout"] = {"action": {"type": "Retry", "revision": CANARY, "id": "old"}}
    again = retry(resource, owned, "", "new")
    assert again == Order(
        None, f"Retry of {CANARY} was asked for already (id old); the operator has not honoured it yet"
    )
    resource["status"]["lastHandledAction"] = {"id": "old", "result": "Honoured"}
    assert retry(resource, owned, "", "new").patch is not None  # it was aborted once more


def test_undo_names_stable_and_says_where_it_goes(scene):
    order = undo(*scene("at-rest"), "", "id-1")
    assert isinstance(order, Order)
    assert order.patch == {"spec": {"rollout": {"action": {"type": "Undo", "revision": STABLE, "id": "id-1"}}}}
    assert f"{OLD} (promotion 1) returns" in order.says


def test_undo_needs_an_earlier_revision_that_was_promoted_and_not_rejected_since(scene):
    resource, owned = scene("at-rest")
    noted(owned, OLD)[names.ABORTED] = "Undone: by a user"
    rejected = undo(resource, owned, "", "id-1")
    assert isinstance(rejected, Refusal)
    assert rejected.says.startswith(f"UndoUnavailable: llama cannot go back from {STABLE}: no earlier promoted")
    del noted(owned, OLD)[names.ABORTED], noted(owned, OLD)[names.PROMOTED]
    assert undo(resource, owned, "", "id-1") == rejected


def test_undo_of_a_fleet_that_never_was_stable_is_refused(scene):
    refusal = undo(*scene("first-rollout"), "", "id-1")
    assert isinstance(refusal, Refusal)
    assert "no revision of it was ever promoted, it is WaitingForGPUs" in refusal.says


def test_undo_during_a_canary_points_to_abort_unless_that_is_the_undo_itself(scene):
    resource, owned = scene("canary")
    refusal = undo(resource, owned, "", "id-1")
    assert refusal == Refusal(f"llama has a canary on its way ({CANARY}): `abort llama` ends it, stable stays")
    resource["spec"]["rollout"] = {"action": {"type": "Undo", "revision": STABLE, "id": "old"}}
    resource["status"]["lastHandledAction"] = {"id": "old", "result": "Honoured"}
    again = undo(resource, owned, "", "id-2")
    assert again == Order(None, f"Undo of {STABLE} was asked for already (id old); the operator is at it")


@pytest.mark.parametrize("order", [retry, undo])
def test_what_cannot_be_seen_is_not_ordered(order, latched):
    resource, owned = latched
    assert order(resource, owned, "forbidden", "x") == Refusal("llama's revisions could not be read: forbidden")
    assert order({**resource, "status": {}}, owned, "", "x").says == "llama has no status yet: is the operator running?"
    resource["status"]["conditions"].append({"type": "ConfigValid", "status": "False", "message": "spec.x: no"})
    assert "is not in force" in order(resource, owned, "", "x").says


def test_an_undo_under_gitops_says_that_git_is_behind(scene):
    resource, owned = scene("at-rest")
    resource["metadata"]["labels"] = {"argocd.argoproj.io/instance": "llama"}
    assert undo(resource, owned, "", "id-1").warnings[-1].startswith("the spec in Git is still the undone one")
