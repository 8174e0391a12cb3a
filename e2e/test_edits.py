"""What a user may do in the middle of a canary: change the spec again, go back, scale, delete."""

import time

from harness.fleet import Fleet, NewFleet, tokens
from harness.manifest import manifest
from harness.stage import Stage


def test_third_revision_mid_canary(stage: Stage, new_fleet: NewFleet) -> None:
    fleet = new_fleet("third", weights=(50,))
    first = fleet.stable()
    with fleet.traffic():
        second = fleet.canary(tokens(5))
        fleet.wait("half of the traffic", 60, lambda: fleet.log.looks[-1].share(second) == 0.5)
        begun = fleet.second()
        third = fleet.canary(tokens(4))
        fleet.wait("some answers", 30, lambda: fleet.share(third, begun) > 0.05)
        looks = fleet.looks(begun)
        assert not any(look.share(third) and look.share(second) for look in looks), "three revisions carried at a time"
        assert all(look.share(first) or look.share(second) for look in looks)
        assert not fleet.pods(second)
        assert list(fleet.promotions()) == [first], "the third is held against the last that was promoted"
        fleet.none_failed()


def test_back_to_stable_mid_canary(stage: Stage, new_fleet: NewFleet) -> None:
    fleet = new_fleet("back")
    stable = fleet.stable()
    untouched = {pod["metadata"]["uid"] for pod in fleet.pods(stable)}
    with fleet.traffic():
        canary = fleet.canary(tokens(5))
        fleet.edit(tokens(3))
        fleet.wait("end of the canary", 60, lambda: not fleet.pods(canary))
        since = fleet.second()
        time.sleep(3)
        assert fleet.share(canary, since) == 0
        assert {pod["metadata"]["uid"] for pod in fleet.pods()} == untouched
        assert fleet.stable() == stable
        fleet.none_failed()


def test_scaled_to_zero_and_back_mid_canary(stage: Stage, new_fleet: NewFleet) -> None:
    fleet = new_fleet("zero")
    with fleet.traffic():
        canary = fleet.canary(tokens(5))
        scale(fleet, 0)
        fleet.wait("end of all pods", 60, lambda: not fleet.pods())
        scale(fleet, 2)
        fleet.promoted(canary, 150)
        since = fleet.second() + 2
        time.sleep(5)
        report = fleet.finish()
        stage.say(f"{report.answered} answers; without pods {report.failures}")
        assert set(report.failures) <= {"refused", "connect"}, "nobody who had reached a pod lost an answer"
        assert fleet.share(canary, since) == 1


def scale(fleet: Fleet, replicas: int) -> None:
    fleet.stage.kubectl("scale", "sdd", fleet.name, f"--replicas={replicas}")
    fleet.stage.say(f"kubectl scale sdd {fleet.name} --replicas={replicas}")


def test_deleted_mid_canary(stage: Stage, new_fleet: NewFleet) -> None:
    fleet = new_fleet("deleted")
    with fleet.traffic():
        fleet.canary(tokens(5))
        fleet.none_failed()
    before = len(stage.operator_log(-1).splitlines())
    assert before > 0
    fleet.remove()
    time.sleep(5)
    said = stage.operator_log(-1).splitlines()[before:]
    stage.say(f"everything is gone; the operator said {len(said)} lines")
    assert len(said) < 20, "\n".join(said)
    assert not any(word in line for line in said for word in (" error ", " warning ", "Traceback")), "\n".join(said)


def test_foreign_service_of_its_name(stage: Stage, new_fleet: NewFleet) -> None:
    foreign = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken"}}
    spec = {"selector": {"app": "someone-elses"}, "ports": [{"port": 80}]}
    stage.apply({**foreign, "spec": spec})
    fleet = Fleet(stage, "taken")
    before = fleet.service()
    stage.apply(manifest("taken"))
    fleet.wait("reason", 30, lambda: fleet.status().get("reason") == "NameTaken")
    time.sleep(3)
    assert fleet.service() == before, "it was touched"
    assert not fleet.pods()
    stage.kubectl("delete", "service", "taken")
    new_fleet("taken")
    with fleet.traffic():
        time.sleep(3)
        fleet.none_failed()
