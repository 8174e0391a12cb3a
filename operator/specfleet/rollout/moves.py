"""From the pods that are to the pods wanted, without cutting a stream: scale up, drain, then scale down. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile

from specfleet.rollout.shape import Bounds
from specfleet.rollout.world import Pod, Revision

LOWEST_COST = -1_000_000  # pod-deletion cost of the first pod drained; later ones cost one more each


@dataclass(frozen=True, slots=True)
class Scale:
    """Write the replicas of one revision's Deployment."""

    revision: Revision
    replicas: int
    why: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Take the serving label off a pod, so that Services stop choosing it; `cost` orders its deletion."""

    pod: Pod
    cost: int
    why: str


@dataclass(frozen=True, slots=True)
class Restore:
    """Put the serving label back on a pod that is wanted after all."""

    pod: Pod
    why: str


Move = Scale | Drain | Restore


@dataclass(frozen=True, slots=True)
class Fleet:
    """The revisions and what is wanted of them.

    `carriers` are the revisions that `Service <name>` selects: only their pods count as available. `finished(pod)` says
    whether a draining pod may go: idle, or out of time. `lingering` pods are being deleted and still hold their GPUs.
    """

    revisions: tuple[Revision, ...]
    wanted: Mapping[str, int]
    carriers: frozenset[str]
    bounds: Bounds
    finished: Callable[[Pod], bool]
    lingering: int = 0


def moves(fleet: Fleet) -> list[Move]:
    """The next moves. Revisions grow in the order given, the total within the bounds; others shrink by draining."""
    found: list[Move] = []
    total = fleet.lingering + sum(arm.wanted + _surplus(arm).total for arm in fleet.revisions)
    spare = sum(arm.ready for arm in fleet.revisions if arm.name in fleet.carriers) - fleet.bounds.fewest
    for arm in fleet.revisions:
        excess = arm.wanted - fleet.wanted.get(arm.name, 0)
        found += _restore(arm, max(0, excess))
        if excess < 0:
            grown = max(0, min(-excess, fleet.bounds.most - total))
            total += grown
            found += _grow(arm, grown)
        elif excess > 0:
            carries = arm.name in fleet.carriers
            shrinking = _shrink(arm, excess, max(0, spare) if carries else excess, fleet.finished)
            spare -= sum(isinstance(move, Drain) for move in shrinking) if carries else 0
            found += shrinking
    return found


def _grow(arm: Revision, by: int) -> list[Move]:
    if not by:
        return []
    return [Scale(arm, arm.wanted + by, f"{arm.name} {arm.wanted} -> {arm.wanted + by} replicas")]


@dataclass(frozen=True, slots=True)
class _Surplus:
    """Pods beyond the Deployment's replicas: its ReplicaSet is about to delete them, unready ones before drained."""

    unready: int
    drained: int

    @property
    def total(self) -> int:
        """All of them; they hold their GPUs until they are gone."""
        return self.unready + self.drained


def _surplus(arm: Revision) -> _Surplus:
    present = [pod for pod in arm.pods if not pod.going]
    leaving = max(0, len(present) - arm.wanted)
    unready = min(leaving, _unready(present))
    return _Surplus(unready, leaving - unready)


def _unready(pods: Iterable[Pod]) -> int:
    return sum(pod.serving and not pod.ready for pod in pods)


def _restore(arm: Revision, excess: int) -> list[Move]:
    surplus = max(0, len(arm.draining) - excess - _surplus(arm).drained)
    return [Restore(pod, f"{pod.name} is wanted after all") for pod in arm.draining[::-1][:surplus]]


def _shrink(arm: Revision, excess: int, allowed: int, finished: Callable[[Pod], bool]) -> list[Move]:
    """Pods that serve nobody go at once; pods that serve are drained first, as many as availability allows."""
    present, surplus = [pod for pod in arm.pods if not pod.going], _surplus(arm)
    draining = arm.draining[surplus.drained :][:excess]
    # A ReplicaSet removes unready pods first, then those with the lowest deletion cost: the first drained.
    free = _unready(present) - surplus.unready + max(0, arm.wanted - len(present))
    done = sum(1 for _ in takewhile(finished, draining))
    leaving = min(excess, free + done)
    found: list[Move] = []
    if leaving:
        found.append(Scale(arm, arm.wanted - leaving, f"{arm.name} {arm.wanted} -> {arm.wanted - leaving} replicas"))
    # Not while an unready one is to go: should it get ready first, one that was just drained would go in its place.
    to_drain = 0 if leaving > done else max(0, min(excess - len(draining) - free, allowed))
    serving = [pod for pod in present if pod.taking_traffic][::-1]
    first_cost = max((pod.deletion_cost + 1 for pod in arm.draining), default=LOWEST_COST)
    return found + [
        Drain(pod, first_cost + order, f"{pod.name} leaves: draining") for order, pod in enumerate(serving[:to_drain])
    ]
