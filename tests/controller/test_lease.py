"""The Lease: one writer, and a writer that knows when it may no longer be one."""

from typing import Any

from specfleet.controller.lease import DURATION, SURE, LeaderLease
from specfleet.controller.protocol import ApiError, Conflict, Exists, Missing
from virtual_time import run


class Leases:
    """The part of Kubernetes that a lease needs."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.down = False

    def _store(self, body: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        return self.lease

    def _answer(self) -> None:
        if self.down:
            raise ApiError(0, "no connection")

    async def get(self, *_: Any) -> dict[str, Any]:
        self._answer()
        if self.lease is None:
            raise Missing(404, "not found")
        return {**self.lease, "spec": dict(self.lease["spec"])}

    async def create(self, _: Any, __: str, body: dict[str, Any]) -> dict[str, Any]:
        self._answer()
        if self.lease is not None:
            raise Exists(409, "exists")
        return self._store(body)

    async def replace(self, _: Any, __: str, body: dict[str, Any]) -> dict[str, Any]:
        self._answer()
        if self.lease is None or body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise Conflict(409, "conflict")
        return self._store(body)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def lease(identity: str, clock: Clock) -> LeaderLease:
    return LeaderLease("ns", "specfleet", identity, clock)


def test_the_first_takes_it_and_the_second_waits() -> None:
    kube, clock = Leases(), Clock()
    first, second = lease("a", clock), lease("b", clock)
    assert run(first.attempt(kube)) is True  # type: ignore[arg-type]
    assert run(second.attempt(kube)) is False  # type: ignore[arg-type]
    assert (first.held(), second.held()) == (True, False)


def test_a_lease_that_is_renewed_is_never_taken() -> None:
    kube, clock = Leases(), Clock()
    first, second = lease("a", clock), lease("b", clock)
    run(first.attempt(kube))  # type: ignore[arg-type]
    for _ in range(20):
        clock.now += 5
        assert run(first.attempt(kube)) is True  # type: ignore[arg-type]
        assert run(second.attempt(kube)) is False  # type: ignore[arg-type]


def test_a_dead_leader_has_stopped_writing_before_another_starts() -> None:
    kube, clock = Leases(), Clock()
    first, second = lease("a", clock), lease("b", clock)
    run(first.attempt(kube))  # type: ignore[arg-type]
    run(second.attempt(kube))  # type: ignore[arg-type]
    while not run(second.attempt(kube)):  # type: ignore[arg-type]
        clock.now += 1
    assert clock.now - 1000 > DURATION > SURE
    assert not first.held()


def test_a_restart_of_the_same_pod_takes_over_at_once() -> None:
    kube, clock = Leases(), Clock()
    run(lease("pod-0", clock).attempt(kube))  # type: ignore[arg-type]
    assert run(lease("pod-0", clock).attempt(kube)) is True  # type: ignore[arg-type]


def test_a_leader_cut_off_from_the_api_stops_being_sure() -> None:
    kube, clock = Leases(), Clock()
    leader = lease("a", clock)
    run(leader.attempt(kube))  # type: ignore[arg-type]
    kube.down = True
    clock.now += SURE - 1
    assert run(leader.attempt(kube)) is False  # type: ignore[arg-type]
    assert leader.held()
    clock.now += 2
    assert not leader.held()


def test_a_released_lease_is_free_at_once() -> None:
    kube, clock = Leases(), Clock()
    first, second = lease("a", clock), lease("b", clock)
    run(first.attempt(kube))  # type: ignore[arg-type]
    run(first.release(kube))  # type: ignore[arg-type]
    assert not first.held()
    assert run(second.attempt(kube)) is True  # type: ignore[arg-type]
    assert kube.lease is not None
    assert kube.lease["spec"]["leaseTransitions"] == 2


def test_another_machines_clock_does_not_matter() -> None:
    kube, clock = Leases(), Clock()
    run(lease("a", clock).attempt(kube))  # type: ignore[arg-type]
    assert kube.lease is not None
    kube.lease["spec"]["renewTime"] = "1999-01-01T00:00:00.000000Z"
    assert run(lease("b", clock).attempt(kube)) is False  # type: ignore[arg-type]
