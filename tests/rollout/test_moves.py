"""From the pods that are to the pods wanted: what moves, and in which order."""

from hypothesis import given
from hypothesis import strategies as st

from arms import arm as revision
from arms import raw_pod
from specfleet.rollout.moves import Drain, Fleet, Restore, Scale, moves
from specfleet.rollout.shape import Bounds


def pod(name, **how):
    return raw_pod(name.partition("-")[0], name, **how)


def serving(name, count):
    return [pod(f"{name}-{index}") for index in range(count)]


def told(found):
    return [
        f"{type(move).__name__} {move.revision.name} {move.replicas}"
        if isinstance(move, Scale)
        else f"{type(move).__name__} {move.pod.name}"
        for move in found
    ]


def fleet(*revisions, wanted, bounds=None, carriers=None, finished=lambda _: False):
    carriers = frozenset(item.name for item in revisions) if carriers is None else frozenset(carriers)
    return Fleet(revisions, wanted, carriers, bounds or Bounds(4, 1, 0), finished)


def test_nothing_moves_where_everything_is_as_wanted():
    assert moves(fleet(revision("v1", 4, *serving("v1", 4)), wanted={"v1": 4})) == []


def test_growth_stops_at_the_surge():
    found = moves(fleet(revision("v1", 4, *serving("v1", 4)), revision("v2", 0), wanted={"v1": 4, "v2": 3}))
    assert told(found) == ["Scale v2 1"]


def test_a_pod_that_serves_is_drained_before_the_deployment_shrinks():
    v1 = revision("v1", 4, *serving("v1", 4))
    v2 = revision("v2", 1, *serving("v2", 1))
    assert told(moves(fleet(v1, v2, wanted={"v1": 3, "v2": 1}))) == ["Drain v1-3"]


def test_a_drained_pod_goes_when_it_is_finished():
    v1 = revision("v1", 4, *serving("v1", 3), pod("v1-3", serving=False, cost=-1_000_000))
    v2 = revision("v2", 1, *serving("v2", 1))
    wanted = {"v1": 3, "v2": 1}
    assert moves(fleet(v1, v2, wanted=wanted)) == []
    assert told(moves(fleet(v1, v2, wanted=wanted, finished=lambda _: True))) == ["Scale v1 3"]


def test_no_pod_is_drained_that_availability_needs():
    v1, v2 = revision("v1", 4, *serving("v1", 4)), revision("v2", 1, pod("v2-0", ready=False))
    assert moves(fleet(v1, v2, wanted={"v1": 3, "v2": 1})) == []


def test_pods_outside_the_service_neither_count_nor_wait():
    v1, v2 = revision("v1", 4, *serving("v1", 4)), revision("v2", 2, *serving("v2", 2))
    found = moves(fleet(v1, v2, wanted={"v1": 4}, carriers=["v1"]))
    assert told(found) == ["Drain v2-1", "Drain v2-0"]


def test_pods_that_serve_nobody_go_at_once():
    v1, v2 = revision("v1", 4, *serving("v1", 4)), revision("v2", 2, pod("v2-0", ready=False), pod("v2-1", ready=False))
    assert told(moves(fleet(v1, v2, wanted={"v1": 4}))) == ["Scale v2 0"]


def test_no_pod_is_drained_while_one_that_is_not_ready_is_to_go():
    """It may get ready before its ReplicaSet chooses; the drained one would then go, with the requests it still has."""
    v1 = revision("v1", 3, *serving("v1", 2), pod("v1-2", ready=False))
    gone = revision("v1", 2, *serving("v1", 2))
    assert told(moves(fleet(v1, wanted={"v1": 0}, bounds=Bounds(0, 0, 0)))) == ["Scale v1 2"]
    assert told(moves(fleet(gone, wanted={"v1": 0}, bounds=Bounds(0, 0, 0)))) == ["Drain v1-1", "Drain v1-0"]


def test_a_drained_pod_that_is_wanted_after_all_comes_back():
    v1 = revision("v1", 4, *serving("v1", 3), pod("v1-3", serving=False))
    assert told(moves(fleet(v1, wanted={"v1": 4}))) == ["Restore v1-3"]


def test_a_pod_that_its_replica_set_is_about_to_delete_does_not_come_back():
    v1 = revision("v1", 3, *serving("v1", 3), pod("v1-3", serving=False))
    assert moves(fleet(v1, wanted={"v1": 3})) == []


def test_drained_pods_leave_in_the_order_in_which_they_were_drained():
    v1 = revision("v1", 4, *serving("v1", 4))
    found = moves(fleet(v1, wanted={"v1": 1}, bounds=Bounds(1, 1, 0)))
    costs = [move.cost for move in found if isinstance(move, Drain)]
    assert costs == sorted(set(costs))
    assert all(cost < 0 for cost in costs)


pods = st.fixed_dictionaries({"ready": st.booleans(), "serving": st.booleans(), "going": st.booleans()})
arms = st.tuples(st.integers(0, 6), st.lists(pods, max_size=6), st.integers(0, 6), st.booleans())


@given(st.lists(arms, min_size=1, max_size=3), st.integers(0, 6), st.integers(0, 2), st.integers(0, 2), st.booleans())
def test_whatever_the_fleet_the_bounds_hold(found, replicas, surge, unavailable, finished):
    revisions = tuple(
        revision(f"v{i}", wanted, *(pod(f"v{i}-{j}", **one) for j, one in enumerate(pods)))
        for i, (wanted, pods, _, _) in enumerate(found)
    )
    wanted = {f"v{i}": arm[2] for i, arm in enumerate(found)}
    carriers = frozenset(f"v{i}" for i, arm in enumerate(found) if arm[3])
    bounds = Bounds(replicas, surge, unavailable)
    planned = moves(Fleet(revisions, wanted, carriers, bounds, lambda _: finished))
    scaled = {move.revision.name: move.replicas for move in planned if isinstance(move, Scale)}
    before = sum(item.wanted for item in revisions)
    after = sum(scaled.get(item.name, item.wanted) for item in revisions)
    assert after <= max(before, bounds.most)
    available = sum(item.ready for item in revisions if item.name in carriers)
    drained = {move.pod.name for move in planned if isinstance(move, Drain)}
    out = sum(one.name in drained for item in revisions if item.name in carriers for one in item.pods)
    assert available - out >= min(available, bounds.fewest)
    for item in revisions:
        target = wanted[item.name]
        assert min(item.wanted, target) <= scaled.get(item.name, item.wanted) <= max(item.wanted, target)
    restored = {move.pod.name for move in planned if isinstance(move, Restore)}
    assert not restored & drained
