"""A stream that runs for long is not cut when its pod has to go."""

from harness.fleet import NewFleet, tokens
from harness.loadreport import Report
from harness.stage import Stage

SPEED = 0.08  # of a simulated server: some 17 tokens per second
LONG = 320  # tokens: about 20 seconds at that speed


def test_long_streams_outlive_the_drain(stage: Stage, new_fleet: NewFleet) -> None:
    fleet = new_fleet("streams", weights=(50,), retainSeconds=0)
    old = fleet.stable()
    with fleet.traffic(rate=1, mix="code=1", max_tokens=LONG, stream_share=1):
        stage.turn(fleet.pods(old), speed=SPEED)
        new = fleet.canary(tokens(5))
        # The new pods are faster and less busy: nothing could be compared.
        fleet.edit({"rollout": {"action": {"type": "Promote", "revision": new, "id": "1"}}})
        fleet.promoted(new, 150)
        fleet.wait("end of the old pods", 90, lambda: not fleet.pods(old))
        log, report = fleet.log, fleet.none_failed()
        late = [last_answer(report, name) - (log.pods[name].left or 0) for name in fleet.seen_pods(old)]
        stage.say(
            f"last answers of the old pods after their drain began: {', '.join(f'{seconds:.0f} s' for seconds in late)}"
        )
        assert len(late) == 2
        assert max(late) > 10, "no long stream was on a pod that had to go"


def last_answer(report: Report, pod: str) -> float:
    """Unix epoch of the end of the last answer from a pod, to the second."""
    return report.started + max(second for second, seen in enumerate(report.timeline) if pod in seen.pods)
