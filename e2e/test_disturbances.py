"""What may happen to an operator or to a pod in the middle of a canary, and must not be noticed by a user."""

import time

from harness.fleet import Fleet, NewFleet, is_ready, restarts, tokens
from harness.stage import Stage

ENDPOINTS_SECONDS = 6  # until no proxy chooses a pod that has died


def test_operator_killed_mid_canary(stage: Stage, new_fleet: NewFleet) -> None:
    fleet = new_fleet("killed")
    with fleet.traffic():
        canary = fleet.canary(tokens(5))
        before, begun = restarts(stage.operator()), fleet.second()
        stage.kill(stage.operator())
        fleet.wait("restart of the operator", 40, lambda: restarts(stage.operator()) > before)
        stage.wait("operator", 40, lambda: is_ready(stage.operator()))
        time.sleep(3)  # it looks at the world, and goes on
        back = fleet.second()
        looks = [look for look in fleet.looks(begun) if look.time < fleet.report.started + back]
        stage.say(
            f"the canary got {100 * fleet.share(canary, begun, back):.0f} % of the answers in those {back - begun} s"
        )
        assert {round(look.share(canary), 2) for look in looks} == {0.33}
        assert 0.1 < fleet.share(canary, begun, back) < 0.6
        fleet.promoted(canary)
        fleet.none_failed()


def test_canary_container_killed_once(stage: Stage, new_fleet: NewFleet) -> None:
    fleet = new_fleet("crashed")
    with fleet.traffic():
        canary = fleet.canary(tokens(5))
        (pod,) = fleet.pods(canary)
        name, begun = pod["metadata"]["name"], fleet.second()
        stage.kill(pod)
        fleet.wait("restart of the pod", 30, lambda: fleet.log.pods[name].restarts == 1)
        served = fleet.report.pods[name]
        fleet.wait("return of its weight", 60, lambda: fleet.report.pods[name] > served + 3)
        assert fleet.log.pods[name].resets == 1
        fleet.promoted(canary)
        assert not fleet.aborted(canary)
        report = fleet.finish()
        failing = [second for second, seen in enumerate(report.timeline) if seen.failures]
        stage.say(f"{report.failed} failed in seconds {failing}, killed in {begun}: {report.failures}")
        assert all(begun <= second <= begun + ENDPOINTS_SECONDS for second in failing)
        assert {example["pod"] for example in report.failure_examples} <= {None, name}
        assert not any("http" in kind for kind in report.failures)


def test_status_wiped_mid_canary(stage: Stage, new_fleet: NewFleet) -> None:
    fleet = new_fleet("wiped", weights=(33, 50))
    with fleet.traffic():
        canary = fleet.canary(tokens(5))
        begun = fleet.second()
        wipe(fleet)
        fleet.wait("second step", 90, lambda: fleet.log.looks[-1].share(canary) >= 0.5)
        wipe(fleet)
        fleet.promoted(canary)
        shares = [look.share(canary) for look in fleet.looks(begun)]
        stage.say(f"the canary's share went {' '.join(f'{100 * share:.0f}%' for share in shares)}")
        # One pod is replaced at a time, so the share only moves up; a step that is forgotten would take it down.
        assert shares == sorted(shares)
        assert any(0.49 < share < 0.51 for share in shares)
        assert list(fleet.promotions().values()) == [1, 2]
        fleet.none_failed()


def wipe(fleet: Fleet) -> None:
    remove = '[{"op": "remove", "path": "/status"}]'
    fleet.stage.kubectl("patch", "sdd", fleet.name, "--subresource=status", "--type=json", "-p", remove)
    fleet.stage.say("status is wiped")


def test_hostile_metrics_page_of_another(stage: Stage, new_fleet: NewFleet) -> None:
    hostile, calm = new_fleet("hostile", replicas=1, weights=(50,)), new_fleet("calm")
    hostile.edit(tokens(5))
    stage.wait(
        "canary of the hostile fleet", 60, lambda: len(hostile.pods()) == 2 and all(map(is_ready, hostile.pods()))
    )
    stage.turn(hostile.pods(), metrics="endless")
    hostile.wait("unreadable page", 60, lambda: hostile.status().get("reason") == "MetricsUnreachable")
    before = restarts(stage.operator())
    with calm.traffic():
        canary = calm.canary(tokens(5))
        calm.promoted(canary, 90)
        calm.none_failed()
    assert restarts(stage.operator()) == before
    assert hostile.newest() not in hostile.promotions()


def test_acceptance_collapses_under_traffic(stage: Stage, new_fleet: NewFleet) -> None:
    fleet = new_fleet("collapsed", replicas=4, weights=(20, 50))
    stable = fleet.stable()
    with fleet.traffic():
        canary = fleet.canary(tokens(5))
        pods = fleet.pods(canary)
        turned = time.time()
        stage.turn(pods, acceptance=0)
        fleet.wait("end of its traffic", 60, lambda: fleet.log.looks[-1].share(canary) == 0)
        fleet.wait("end of the canary", 60, lambda: not fleet.pods(canary))
        report = fleet.none_failed()
        last = max(second for second, seen in enumerate(report.timeline) if set(seen.pods) & fleet.seen_pods(canary))
        narrowed = next(look.time for look in fleet.log.looks if look.time > turned and not look.share(canary))
        seconds = report.started + last + 1 - turned
        stage.say(f"after the collapse: no weight in {narrowed - turned:.1f} s, no answer in {seconds:.1f} s")
        assert seconds < 15
        assert fleet.aborted(canary).startswith("CanaryNotAccepting")
        assert fleet.stable() == stable
