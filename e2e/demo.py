"""`make demo`: the product's main job, end to end, on a real Kubernetes, told as it happens.

The verdict is not the operator's: the load generator's answers per pod and the pods' own counters decide the exit code.
"""

import argparse
import signal
import sys
import time
from types import FrameType
from typing import Any, NoReturn

from harness.errors import HarnessError
from harness.loadreport import Report
from harness.stage import Load, Stage
from harness.witness import Log

NAME = "qwen"
DRAFTER = "RedHatAI/Qwen3-8B-speculator.eagle3"
BROKEN_DRAFTER = "example/accepts-nothing"  # the simulated server knows it by its name
FLEET: dict[str, Any] = {
    "apiVersion": "specfleet.dev/v1alpha1",
    "kind": "SpecDecodeDeployment",
    "metadata": {"name": NAME},
    "spec": {
        "replicas": 4,
        "model": {"source": {"huggingFace": {"repo": "Qwen/Qwen3-8B"}}},
        "speculation": {
            "method": "eagle3",
            "draft": {"source": {"huggingFace": {"repo": DRAFTER}}},
            "numSpeculativeTokens": 3,
        },
        "engine": {"image": "specfleet.dev/vllm-sim:v0.32.0"},
        "accelerator": {"count": 1, "products": ["MI300X"]},
        "pod": {"startupSeconds": 60, "drainSeconds": 30},
        "rollout": {
            "steps": [{"weight": 20, "minSeconds": 5}, {"weight": 50, "minSeconds": 5}],
            "maxSurge": 1,
            "retainSeconds": 10,
            # Short blocks and wide margins, so that two minutes are enough. In production keep the defaults: blocks of
            # a minute and margins of 5 percent, which a handful of pods needs an hour or more of traffic to prove.
            "analysis": {
                "scrapeSeconds": 1,
                "blockSeconds": 3,
                "maxSeconds": 300,
                "margins": {"speedPercent": 15, "errorPoints": 5},
            },
        },
    },
}


class Story:
    """Runs the two rollouts and keeps what was seen from outside."""

    def __init__(self, stage: Stage, load: Load | None = None) -> None:
        self.stage = stage
        self.load = load
        self.failed: list[str] = []

    def check(self, holds: bool, what: str) -> None:
        """One thing that must have happened, as seen from outside."""
        print(f"          {'✓' if holds else '✗'} {what}", flush=True)
        if not holds:
            self.failed.append(what)

    def line(self) -> str:
        """The SDD in one line, as `kubectl get sdd` shows it."""
        status = self.stage.status(NAME)
        canary = (status.get("canary") or {}).get("revision", "-")
        weight, message = status.get("weight", "-"), status.get("message", "")
        length = status.get("proposalLength", "?")
        return f"  {status.get('reason', '...'):18} canary {canary}  weight {weight}  k {length}  {message}"

    def stable(self) -> str:
        return str((self.stage.status(NAME).get("stable") or {}).get("revision", ""))

    def settled(self) -> bool:
        status = self.stage.status(NAME)
        fresh = status.get("observedGeneration") == self.stage.sdd(NAME)["metadata"]["generation"]
        return fresh and status.get("reason") in ("Stable", "RetainingOld")


def first_rollout(story: Story) -> str:
    stage = story.stage
    stage.apply(FLEET)
    stage.say(f"kubectl apply: {NAME}, 4 replicas, EAGLE-3 with k = 3, one GPU each")
    stage.wait("first rollout", 120, story.settled, story.line)
    pods = [pod for pod in stage.items("pods", NAME) if pod["spec"]["containers"][0]["resources"]["limits"]]
    gpus = sum(int(pod["spec"]["containers"][0]["resources"]["limits"]["amd.com/gpu"]) for pod in pods)
    story.check(len(pods) == 4 and gpus == 4, f"{len(pods)} vLLM pods hold {gpus} amd.com/gpu")
    return story.stable()


def promotion(story: Story, witness: Any, before: str) -> str:
    stage = story.stage
    assert story.load is not None
    stage.say("the user changes numSpeculativeTokens 3 -> 5")
    begun = len(story.load.report.timeline)
    stage.patch(NAME, {"speculation": {"numSpeculativeTokens": 5}})
    stage.wait("promotion", 180, lambda: story.stable() not in ("", before), story.line)
    after = story.stable()
    stage.say(f"{after} is stable")
    flipped = len(story.load.report.timeline)
    time.sleep(6)
    log, report = witness(), story.load.report
    shares = weights(report, log, after, begun)
    story.check(any(0.10 <= share <= 0.35 for share in shares), "the canary got about 20 % of the answers, then more")
    story.check(any(0.40 <= share <= 0.65 for share in shares), "and about 50 %")
    new = {name for name, pod in log.pods.items() if pod.revision == after}
    final = report.share(new, flipped + 2)
    story.check(final is not None and final > 0.95, f"and {100 * (final or 0):.0f} % after promotion")
    story.check(
        all(pod.positions == 5 for pod in log.of(after) if pod.generated), "its pods' counters show 5 draft positions"
    )
    old = [pod for pod in log.of(before) if pod.drafts]
    story.check(bool(old) and all(pod.positions == 3 for pod in old), "the old pods' show 3")
    story.check(log.most <= 5, f"at most {log.most} pods at a time for 4 replicas and a surge of 1")
    return after


def weights(report: Report, log: Log, revision: str, begun: int) -> list[float]:
    """The canary's share of the answers in each window of five seconds since its rollout began."""
    pods = {name for name, pod in log.pods.items() if pod.revision == revision}
    windows = [report.share(pods, since, since + 5) for since in range(begun, len(report.timeline) - 4)]
    return [share for share in windows if share is not None]


def abort(story: Story, witness: Any, stable: str) -> None:
    stage = story.stage
    assert story.load is not None
    stage.wait("rest", 60, story.settled)
    stage.say(f"the user tries another drafter: {BROKEN_DRAFTER}")
    stage.patch(NAME, {"speculation": {"draft": {"source": {"huggingFace": {"repo": BROKEN_DRAFTER}}}}})
    stage.wait("abort", 120, lambda: stage.status(NAME).get("reason") == "CanaryAborted", story.line)
    stage.say(f"aborted: {stage.status(NAME)['message']}")
    stage.wait("the canary's pods to go", 60, lambda: len(stage.items("pods", NAME)) == 4)
    log, report = witness(), story.load.report
    bad = {name: pod for name, pod in log.pods.items() if pod.drafts and pod.accepted == 0}
    answers = sum(report.pods.get(name, 0) for name in bad)
    drafts = sum(pod.drafts or 0 for pod in bad.values())
    story.check(bool(bad) and drafts >= 200, f"its pod's counters: {drafts:.0f} drafts, 0 tokens accepted")
    story.check(answers == 0, f"users got {answers} answers from it")
    story.check(story.stable() == stable and story.settled() is False, f"{stable} stays stable, the abort latches")


def ending(story: Story) -> None:
    assert story.load is not None
    report = story.load.finish()
    story.check(report is not None and report.answered > 0, f"{report.answered if report else 0} answers in all")
    failed = report.failed if report else -1
    story.check(failed == 0, f"{failed} failed requests, {report.failures if report else {}} by kind")


def run() -> int:
    with Stage() as stage:
        story = Story(stage)
        first = first_rollout(story)
        with stage.witness(NAME) as witness, stage.load(NAME, rate=10, mix="chat=0.2,code=0.8") as load:
            story.load = load
            stage.say("requests flow: 10 a second, chat and code, half of them streams")
            stage.wait("first answers", 20, lambda: load.started() and load.report.answered > 20)
            second = promotion(story, witness, first)
            abort(story, witness, second)
            ending(story)
        stage.say("the cluster goes, and everything with it")
    print("\nIt happened as it should." if not story.failed else f"\nFAILED: {'; '.join(story.failed)}")
    return 1 if story.failed else 0


def interrupted(_: int, __: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    signal.signal(signal.SIGTERM, interrupted)
    try:
        sys.exit(run())
    except HarnessError as error:
        sys.exit(f"demo: {error}")
    except KeyboardInterrupt:
        sys.exit("demo: interrupted; everything is stopped")


if __name__ == "__main__":
    main()
