"""Two operators, of which one writes: what a canary notices when that one is lost, or only seems to be."""

import time
from collections.abc import Iterator

import pytest

from harness.fleet import Fleet, NewFleet, restarts, tokens
from harness.stage import OPERATOR_NAMESPACE, Stage

TERM = 15  # seconds for which a Lease counts after it was last renewed
FIGURES = ("acceptance", "tokensPerStep", "stepTime")  # a status follows them whoever writes it

pytestmark = pytest.mark.usefixtures("two_operators")


@pytest.fixture(scope="module")
def two_operators(stage: Stage) -> Iterator[None]:
    stage.install({"replicas": "2"})
    yield
    stage.install()


def test_leader_is_lost_mid_canary(stage: Stage, new_fleet: NewFleet) -> None:
    fleet = new_fleet("lost")
    with fleet.traffic():
        canary = fleet.canary(tokens(5))
        lost, begun = stage.leader(), fleet.second()
        stage.freeze(stage.operator(lost))  # as its machine is: it can do nothing more, not even say so
        stage.kubectl("-n", OPERATOR_NAMESPACE, "delete", "pod", lost, "--force", "--grace-period=0", "--wait=false")
        another_leads(fleet, lost)
        taken = fleet.second()
        looks = [look for look in fleet.looks(begun) if look.time < fleet.report.started + taken]
        share = fleet.share(canary, begun, taken)
        stage.say(f"another leads after {taken - begun} s, in which the canary got {100 * share:.0f} % of the answers")
        assert taken - begun >= TERM - 6, "it did not wait for the Lease, which is renewed every 5 s"
        assert {round(look.share(canary), 2) for look in looks} == {0.33}
        assert 0.1 < share < 0.6
        fleet.promoted(canary)
        assert list(fleet.promotions().values()) == [1, 2]
        fleet.none_failed()


def test_leader_wakes_when_another_leads(stage: Stage, new_fleet: NewFleet) -> None:
    fleet = new_fleet("woken", retainSeconds=0)
    first = fleet.stable()
    with fleet.traffic():
        canary = fleet.canary(tokens(5))
        frozen = stage.leader()
        before = restarts(stage.operator(frozen))
        stage.freeze(stage.operator(frozen))
        another_leads(fleet, frozen)
        fleet.promote(canary)
        fleet.wait("rest", 60, lambda: fleet.settled() and not fleet.pods(first))
        written, said, woken = fleet.versions(), told(fleet), time.time()
        assert stage.writes(stage.leader(), fleet.report.started), "the audit log does not tell who writes"
        stage.wake(stage.operator(frozen))  # it believes that it leads, and that the canary has a third
        fleet.wait("end of its process", 30, lambda: restarts(stage.operator(frozen)) == before + 1)
        time.sleep(5)  # it may try whatever it likes
        assert stage.leader() != frozen
        assert not stage.writes(frozen, woken)
        assert (fleet.versions(), told(fleet)) == (written, said)
        assert list(fleet.promotions().values()) == [1, 2]
        fleet.none_failed()


def test_leader_is_killed_mid_canary(stage: Stage, new_fleet: NewFleet) -> None:
    """Its container starts again with the same name, beside another operator that waits for the Lease."""
    fleet = new_fleet("beheaded")
    with fleet.traffic():
        canary = fleet.canary(tokens(5))
        killed, begun = stage.leader(), fleet.second()
        before, since = restarts(stage.operator(killed)), time.time() + 1
        stage.kill(stage.operator(killed))
        fleet.wait("its restart", 40, lambda: restarts(stage.operator(killed)) > before)
        fleet.wait("news", 30, lambda: fleet.second() > begun + 5)
        assert {round(look.share(canary), 2) for look in fleet.looks(begun)} == {0.33}
        fleet.promoted(canary)
        written = {pod["metadata"]["name"]: deeds(stage, pod["metadata"]["name"], since) for pod in stage.operators()}
        assert [name for name, deed in written.items() if deed] == [stage.leader()], written
        assert list(fleet.promotions().values()) == [1, 2]
        fleet.none_failed()


def deeds(stage: Stage, pod: str, since: float) -> list[str]:
    """What an operator has written beside the Lease."""
    return [write for write in stage.writes(pod, since) if "/leases" not in write]


def another_leads(fleet: Fleet, lost: str) -> None:
    fleet.wait("another leader", 40, lambda: fleet.stage.leader() not in (lost, ""))
    fleet.stage.say(f"{fleet.stage.leader()} leads instead of {lost}")


def told(fleet: Fleet) -> dict[str, object]:
    return {field: value for field, value in fleet.status().items() if field not in FIGURES}
