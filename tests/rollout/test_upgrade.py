"""A new version of the operator over a running fleet: no pod restarts, no revision comes, the difference is told."""

import pytest

from specfleet.api.conditions import find
from specfleet.resources import revision as builder


@pytest.fixture
def upgrade(monkeypatch):
    """Restarts a story's operator as a version that renders every pod with one more environment variable."""

    def _upgrade(story):
        render = builder.render

        def later(name, revision, spec):
            payload = render(name, revision, spec)
            container = payload["template"]["spec"]["containers"][0]
            container["env"] = [*container["env"], {"name": "NEW_DEFAULT", "value": "1"}]
            return {**payload, "addedLater": True}

        for module in ("specfleet.rollout.writes", "specfleet.rollout.conditions"):
            monkeypatch.setattr(f"{module}.render", later)
        story.restart("an operator that renders pods differently takes over")

    return _upgrade


def outdated(story):
    return find(story.status["conditions"], "TemplateOutdated")


def pods(story):
    return {raw["metadata"]["uid"] for raw in story.kube.all("Pod")}


async def test_a_fleet_at_rest_is_left_alone_until_a_restart_takes_it_through_a_canary(at_rest, golden, upgrade):
    story = await at_rest()
    before = pods(story)
    assert outdated(story) is None
    upgrade(story)
    await story.run(300)
    assert (pods(story), len(story.revisions)) == (before, 1)
    assert outdated(story)["status"] == "True"
    assert "containers" in outdated(story)["message"]
    story.edit("restart: after the upgrade", restart="after the upgrade")
    await story.run_until(lambda: story.weights.get("v2", 0) == 20)
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    assert outdated(story) is None
    golden(story)


async def test_a_running_canary_goes_on_with_the_pods_that_it_began_with(at_rest, golden, upgrade):
    story = await at_rest()
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.weights.get("v2", 0) == 20)
    before = pods(story)
    upgrade(story)
    await story.run(20)
    assert before <= pods(story)
    await story.run_until(lambda: story.stable.number == 2)
    await story.run_until_reason("Stable")
    templates = {raw["metadata"]["name"]: raw["spec"]["template"] for raw in story.kube.all("Deployment")}
    assert all("NEW_DEFAULT" not in str(template) for template in templates.values())
    golden(story)


async def test_an_older_operator_leaves_fields_that_it_does_not_know(at_rest):
    story = await at_rest()
    story.edit("a field of a later version", laterVersion={"field": 1})
    await story.run(60)
    assert story.sdd["spec"]["laterVersion"] == {"field": 1}
    assert (story.reason, len(story.revisions)) == ("Stable", 1)
