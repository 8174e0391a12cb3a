"""What an operator learns of its own judge while a fleet rests: metrics of its own, and no request."""

from specfleet.controller.metrics import Metrics
from specfleet.judgement.verdict import Metric
from specfleet.plan import Plan
from story import Story

HOUR = 3600


async def rested(hours=2.5, **spec):
    story = Story(spec=spec)
    found = []
    story.telemetry._checked = lambda key, checked: found.append(checked)
    await story.run_until_reason("Stable", seconds=300)
    await story.run(60)
    calls = len(story.kube.calls)
    await story.run(hours * HOUR)
    assert story.kube.calls[calls:] == []
    return story, found


async def test_halves_of_a_fleet_at_rest_are_compared_without_a_request_and_told_when_a_canary_begins():
    story, found = await rested(replicas=4)
    seen = (await story.observe()).check
    assert len(found) == seen.comparisons == 6  # two hours of three splits
    assert "selfCheck" not in story.status
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: "canary" in story.status)
    told = story.status["selfCheck"]
    assert (told["comparisons"], told["falseAlarms"]) == (6, seen.false_alarms)
    assert told["podSpread"].startswith("speed ")
    await story.run_until(lambda: story.stable.number == 2)
    await story.run(120)
    assert story.status["selfCheck"] == told
    assert (await story.observe()).check is None  # another revision's pods are another matter


async def test_three_pods_are_too_few_to_be_split():
    story, found = await rested(replicas=3)
    assert found == []
    assert (await story.observe()).check is None


async def test_what_it_showed_are_metrics_of_the_operator_that_go_with_the_resource():
    story, found = await rested(replicas=4)
    metrics = Metrics(lambda: 0.0, lambda: True)
    for checked in found:
        metrics.checked(story.key, checked)
    labels = {"namespace": "chat", "name": "qwen"}

    def value(name, **more):
        return metrics.registry.get_sample_value(name, {**labels, **more})

    spread = (await story.observe()).check.spread
    metrics.planned(story.key, Plan(status=story.status, spread=spread))
    assert value("specfleet_self_check_comparisons_total") == 6
    for metric in (Metric.SPEED, Metric.ACCEPTANCE, Metric.ERRORS):
        assert value("specfleet_pod_spread_ratio", metric=metric.value) == spread[metric] / 100
    metrics.forget(story.key)
    assert value("specfleet_self_check_comparisons_total") is None
    assert value("specfleet_pod_spread_ratio", metric="speed") is None
