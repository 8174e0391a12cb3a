"""Who is who: stable, target, canary, retained, and what is left over."""

from arms import arm, raw_pod
from specfleet.rollout.roles import assign, hard
from specfleet.rollout.world import rfc3339

NOW = 1_767_225_600.0


def revision(name, promoted=0, at=NOW, aborted="", pods=0):
    notes = {"promoted": f"{promoted} {rfc3339(at)}"} if promoted else {}
    return arm(name, pods, *(raw_pod(name, f"{name}-{i}") for i in range(pods)), **notes, aborted=aborted)


def roles(*revisions, spec, retain=60):
    return assign({item.name: item for item in revisions}, spec, retain, NOW)


def names(revisions):
    return [item.name for item in revisions]


def test_before_the_first_promotion_there_is_a_target_and_nothing_else():
    found = roles(revision("v1", pods=2), spec="v1")
    assert (found.stable, found.target.name, found.canary) == (None, "v1", None)


def test_stable_is_the_highest_promotion_whatever_the_spec_says():
    found = roles(revision("v1", promoted=3), revision("v2", promoted=2), spec="v3")
    assert (found.stable.name, found.target, found.canary) == ("v1", None, None)


def test_the_specs_revision_is_the_canary_until_it_is_promoted():
    found = roles(revision("v1", promoted=1), revision("v2"), spec="v2")
    assert (found.stable.name, found.canary.name) == ("v1", "v2")
    assert found.others == ()


def test_an_old_revision_that_the_spec_asks_for_again_is_a_canary():
    found = roles(revision("v1", promoted=1), revision("v2", promoted=2), spec="v1")
    assert (found.stable.name, found.canary.name) == ("v2", "v1")


def test_an_aborted_revision_is_no_canary_and_stays_latched():
    found = roles(revision("v1", promoted=1), revision("v2", aborted="CanaryDead: x", pods=1), spec="v2")
    assert found.canary is None
    assert found.latched
    assert names(found.leaving) == ["v2"]


def test_stable_cannot_be_latched():
    found = roles(revision("v1", promoted=1, aborted="CanaryDead: x"), spec="v1")
    assert not found.latched


def test_the_revision_before_is_retained_for_its_time_and_while_no_canary_needs_the_room():
    v1, v2 = revision("v1", promoted=1, pods=1), revision("v2", promoted=2, at=NOW - 59, pods=4)
    assert roles(v1, v2, spec="v2").retained is v1
    assert roles(v1, v2, spec="v2", retain=59).retained is None
    assert roles(v1, v2, revision("v3"), spec="v3").retained is None


def test_a_third_revision_with_pods_leaves():
    found = roles(revision("v1", promoted=1), revision("v2", pods=2), revision("v3"), spec="v3")
    assert names(found.leaving) == ["v2"]


def test_only_aborts_that_hurt_users_are_hard():
    assert hard("CanaryDead: pod x restarted 2 times")
    assert hard("CanaryIncorrect: 1 of 8")
    assert not hard("CanaryRegressed: speed -9 %")
    assert not hard("UserAborted: asked for")
    assert not hard("")
