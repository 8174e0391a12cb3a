"""A GitOps controller that applies the user's manifest again every five seconds, through a whole rollout."""

from copy import deepcopy

import pytest

from story import Story

PERIOD = 5.0  # seconds
LABELS = {"kustomize.toolkit.fluxcd.io/name": "models"}
SPEC = {
    "replicas": 2,
    "pod": {"startupSeconds": 60, "drainSeconds": 20},
    "rollout": {
        "steps": [{"weight": 30, "minSeconds": 10}],
        "retainSeconds": 20,
        "analysis": {"scrapeSeconds": 5, "blockSeconds": 10, "maxSeconds": 300},
    },
}


class Git:
    """A manifest in Git, and whoever applies it. Fields that Git does not name are left alone by `apply`, as by
    server-side apply and by Argo CD's default, and removed by `replace`, as by Flux where kubectl wrote them."""

    def __init__(self, story):
        self.story, self.spec = story, deepcopy(story.sdd["spec"])
        self.changed = 0  # applies that found something other than what Git says

    def apply(self, touch=False):
        sdd = self.story.sdd
        wanted = _over(sdd, {"metadata": {"labels": LABELS}, "spec": self.spec})
        self._write(sdd, wanted, touch)

    def replace(self):
        sdd = self.story.sdd
        wanted = {**_over(sdd, {"metadata": {"labels": LABELS}}), "spec": deepcopy(self.spec)}
        self._write(sdd, wanted, touch=False)

    def _write(self, sdd, wanted, touch):
        self.changed += wanted != sdd
        if touch or wanted != sdd:  # the API server writes nothing for an apply that changes nothing
            self.story.kube.put(wanted)


def _over(live, wanted):
    if not isinstance(live, dict) or not isinstance(wanted, dict):
        return wanted
    return {**live, **{key: _over(live.get(key), value) for key, value in wanted.items()}}


async def begun():
    story = Story(spec=SPEC)
    for number in (1, 2):
        story.behave(number, start=3.0)
    git = Git(story)
    git.apply()
    await story.run_until_reason("Stable")
    git.changed = 0
    return story, git


async def every_period(story, act, until, seconds=900.0):
    """`act` every period until `until()`, and a minute longer."""
    end = story.clock.now + seconds
    while not until():
        assert story.clock.now < end, story.text()
        await story.run(PERIOD)
        act()
    for _ in range(12):
        await story.run(PERIOD)
        act()


async def canary(act_of, how=None):
    """A canary through to its end, and what became of it."""
    story, git = await begun()
    act = act_of(git)
    story.behave(2, **{"start": 3.0, **(how or {})})
    git.spec["speculation"]["numSpeculativeTokens"] = 5
    git.apply()
    git.changed = 0
    generation = story.sdd["metadata"]["generation"]
    await every_period(story, act, lambda: len(story.revisions) == 2 and story.reason in ("Stable", "CanaryAborted"))
    assert story.sdd["metadata"]["generation"] == generation
    assert story.watchdog.wrongs == [], story.text()
    assert story.fleet.lost == 0, story.text()
    return story, git


def nobody(git):
    return lambda: None


def applied(git):
    return git.apply


def replaced(git):
    return git.replace


def applied_with_a_write_each_time(git):
    """As by clients that write a time into the object's metadata: a watch event each time."""
    return lambda: git.apply(touch=True)


@pytest.mark.parametrize("how", [{}, {"pace": 1.5}, {"garbage": True}], ids=["promoted", "regressed", "incorrect"])
@pytest.mark.parametrize("loop", [applied, replaced, applied_with_a_write_each_time])
async def test_applying_again_and_again_changes_nothing_of_a_rollout(loop, how):
    alone, _ = await canary(nobody, how)
    story, git = await canary(loop, how)
    assert git.changed == 0, "the operator writes nothing that Git would put back"
    assert story.sdd["metadata"]["labels"] == LABELS
    assert story.text() == alone.text()
    assert story.outcome() == alone.outcome()


async def test_a_promotion_by_argo_cd_is_carried_out_though_git_takes_the_order_away_again(argo, scripts):
    story, git = await begun()
    git.spec["speculation"]["numSpeculativeTokens"] = 5
    git.spec["rollout"]["steps"] = [{"weight": 30, "minSeconds": 100000}]
    git.apply()
    await every_period(story, git.replace, lambda: story.reason == "CanaryDwelling")
    story.kube.put(_over(story.sdd, argo.act(scripts["promote"], story.sdd)))
    assert story.sdd["spec"]["rollout"]["action"]["type"] == "Promote"
    await every_period(story, git.replace, lambda: story.stable.number == 2)
    assert "action" not in story.sdd["spec"]["rollout"]
    assert story.weights == {"v2": 100}


async def test_an_abort_by_argo_cd_stays_though_git_takes_the_order_away_again(argo, scripts):
    story, git = await begun()
    git.spec["speculation"]["numSpeculativeTokens"] = 5
    git.apply()
    await every_period(story, git.replace, lambda: story.weights.get("v2", 0) > 0)
    story.kube.put(_over(story.sdd, argo.act(scripts["abort"], story.sdd)))
    await every_period(story, git.replace, lambda: story.reason == "CanaryAborted")
    assert "action" not in story.sdd["spec"]["rollout"]
    assert story.reason == "CanaryAborted"
    assert story.weights == {"v1": 100}


@pytest.mark.parametrize(
    ("loop", "weights", "reason"), [(applied, {"v1": 100}, "CanaryPaused"), (replaced, {"v2": 100}, "Stable")]
)
async def test_a_pause_holds_unless_git_takes_it_away(loop, weights, reason, argo, scripts):
    story, git = await begun()
    story.kube.put(_over(story.sdd, argo.act(scripts["pause"], story.sdd)))
    git.spec["speculation"]["numSpeculativeTokens"] = 5
    git.apply()
    for _ in range(60):
        await story.run(PERIOD)
        loop(git)()
    assert (story.weights, story.reason) == (weights, reason)


async def test_a_commit_that_goes_back_clears_an_abort():
    story, git = await canary(applied, {"garbage": True})
    assert story.reason == "CanaryAborted"
    git.spec["speculation"]["numSpeculativeTokens"] = 3
    git.apply()
    await every_period(story, git.apply, lambda: story.reason == "Stable")
    assert story.weights == {"v1": 100}


async def test_replicas_that_a_scaler_owns_stay_out_of_git():
    story, git = await begun()
    del git.spec["replicas"]
    story.edit("a scaler asks for 3", replicas=3)
    await every_period(story, git.apply, lambda: story.stable.ready == 3)
    assert story.sdd["spec"]["replicas"] == 3
    assert git.changed == 0
