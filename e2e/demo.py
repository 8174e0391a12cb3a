"""`make demo`: the product's main job, end to end, on a real Kubernetes, told as it happens.

The verdict is not the operator's: the load generator's answers per pod and the pods' own counters decide the exit code.
"""

import textwrap
import time

from harness.fleet import Fleet, tokens
from harness.manifest import manifest
from harness.stage import Stage
from harness.telling import Story, command

NAME = "qwen"
BROKEN_DRAFTER = "example/accepts-nothing"  # the simulated server knows it by its name


def first_rollout(story: Story) -> str:
    story.stage.say(f"kubectl apply: {NAME}, 4 replicas, EAGLE-3 with k = 3, one GPU each")
    story.fleet.apply(manifest(NAME, replicas=4, weights=(20, 50)))
    pods = [pod for pod in story.fleet.pods() if pod["spec"]["containers"][0]["resources"]["limits"]]
    gpus = sum(int(pod["spec"]["containers"][0]["resources"]["limits"]["amd.com/gpu"]) for pod in pods)
    story.check(len(pods) == 4 and gpus == 4, f"{len(pods)} vLLM pods hold {gpus} amd.com/gpu")
    return story.fleet.stable()


def promotion(story: Story, before: str) -> str:
    stage, fleet = story.stage, story.fleet
    stage.say("the user changes numSpeculativeTokens 3 -> 5")
    begun = fleet.second()
    after = fleet.canary(tokens(5))
    fleet.wait("judgement", 180, lambda: judged(fleet) or fleet.stable() == after)
    stage.say("kubectl specfleet status qwen\n")
    print(textwrap.indent(stage.plugin("status", NAME), " " * 10), flush=True)
    fleet.promoted(after, 180)
    flipped = fleet.second()
    time.sleep(6)
    shares = weights(fleet, after, begun)
    story.check(any(0.10 <= share <= 0.35 for share in shares), "the canary got about 20 % of the answers, then more")
    story.check(any(0.40 <= share <= 0.65 for share in shares), "and about 50 %")
    final = fleet.share(after, flipped + 2)
    story.check(final > 0.95, f"and {100 * final:.0f} % after promotion")
    log = fleet.log
    story.check(
        all(pod.positions == 5 for pod in log.of(after) if pod.generated), "its pods' counters show 5 draft positions"
    )
    old = [pod for pod in log.of(before) if pod.drafts]
    story.check(bool(old) and all(pod.positions == 3 for pod in old), "the old pods' show 3")
    story.check(log.most <= 5, f"at most {log.most} pods at a time for 4 replicas and a surge of 1")
    return after


def judged(fleet: Fleet) -> bool:
    """There is an interval to be seen."""
    return any("estimate" in metric for metric in fleet.status().get("metrics", ()))


def weights(fleet: Fleet, revision: str, begun: int) -> list[float]:
    """The canary's share of the answers in each window of five seconds since its rollout began."""
    return [fleet.share(revision, since, since + 5) for since in range(begun, len(fleet.report.timeline) - 4)]


def abort(story: Story, stable: str) -> None:
    stage, fleet = story.stage, story.fleet
    fleet.wait("rest", 60, fleet.settled)
    stage.say(f"the user tries another drafter: {BROKEN_DRAFTER}")
    fleet.edit({"speculation": {"draft": {"source": {"huggingFace": {"repo": BROKEN_DRAFTER}}}}})
    fleet.wait("abort", 120, lambda: fleet.status().get("reason") == "CanaryAborted")
    stage.say(f"aborted: {fleet.status()['message']}")
    stage.wait("the canary's pods to go", 60, lambda: len(fleet.pods()) == 4)
    log, report = fleet.log, fleet.report
    bad = {name: pod for name, pod in log.pods.items() if pod.drafts and pod.accepted == 0}
    answers = sum(report.pods.get(name, 0) for name in bad)
    drafts = sum(pod.drafts or 0 for pod in bad.values())
    story.check(bool(bad) and drafts >= 200, f"its pod's counters: {drafts:.0f} drafts, 0 tokens accepted")
    story.check(answers == 0, f"users got {answers} answers from it")
    latched = fleet.aborted(fleet.newest()).startswith("CanaryNotAccepting")
    story.check(fleet.stable() == stable and latched, f"{stable} stays stable, the abort latches: it accepts nothing")


def ending(story: Story) -> None:
    report = story.fleet.finish()
    story.check(report.answered > 0, f"{report.answered} answers in all")
    story.check(report.failed == 0, f"{report.failed} failed requests {report.failures or ''}".rstrip())


def run() -> int:
    with Stage() as stage:
        story = Story(stage, Fleet(stage, NAME))
        first = first_rollout(story)
        with story.fleet.traffic(rate=10):
            stage.say("requests flow: 10 a second, chat and code, half of them streams")
            stage.say("(blocks of 3 s and margins of 15 % here: two minutes of traffic cannot prove the default 5 %)")
            second = promotion(story, first)
            abort(story, second)
            ending(story)
        stage.say("the cluster goes, and everything with it")
    return story.verdict()


if __name__ == "__main__":
    command("demo", __doc__, run)
