"""Gathers what one look at a canary knows: guards, verdict, orders, the user's policy. Pure."""

from specfleet.judgement.guards import ArmFacts, PodFacts, ProbeFacts, first_failure
from specfleet.judgement.judge import judge
from specfleet.judgement.verdict import Verdict
from specfleet.rollout import margins
from specfleet.rollout.canary import Facts, Policy, Step
from specfleet.rollout.memory import Rollout
from specfleet.rollout.orders import ordered
from specfleet.rollout.scene import ArmSeen, Scene
from specfleet.rollout.world import Revision
from specfleet.telemetry.evidence import Evidence

NO_PROBES = ProbeFacts(0, 0, 0, "")
COMPARED = ("method", "numSpeculativeTokens", "schedule")  # equal in both arms, or acceptance is no comparison


def verdict(scene: Scene, stable: Revision, canary: Revision, evidence: Evidence) -> Verdict:
    """The judge's verdict on the evidence, with the user's margins."""
    comparable = all(stable.payload.get(key) == canary.payload.get(key) for key in COMPARED)
    return judge(evidence, comparable, margins.policy(scene.spec))


def policy(scene: Scene, rollout: Rollout) -> Policy:
    """What the user asked of the rollout."""
    wanted = scene.spec.rollout
    weights = tuple(Step(step.weight, step.min_seconds) for step in wanted.steps if step.weight is not None)
    return Policy(
        steps=weights or (Step(50),),
        bounds=scene.bounds(rollout.borrowed),
        paused=scene.spec.paused,
        max_blocks=margins.max_blocks(scene.spec),
        abort_inconclusive=wanted.on_inconclusive == "Abort",
        startup_seconds=scene.spec.pod.startup_seconds,
    )


def canary_facts(scene: Scene, stable: Revision, canary: Revision, seen: Verdict, blocks: int) -> Facts:
    """All that `advance` asks about; `seen` is the verdict so far, on `blocks` blocks."""
    asked = ordered(scene, canary)
    return Facts(
        canary=canary,
        stable=stable,
        failure=first_failure(arm_facts(scene, canary, scene.seen.canary), arm_facts(scene, stable, scene.seen.stable)),
        verdict=seen,
        blocks=blocks,
        probed=scene.probed(canary.pods),
        probe_unknown=probe_unknown(scene, canary),
        carrying=canary.name in scene.carriers,
        third=any(revision.alive for revision in scene.roles.others),
        since=scene.seen.since,
        unreachable=scene.seen.canary.unreachable or scene.seen.stable.unreachable,
        dark=scene.seen.canary.unreachable_for > max(60.0, 4.0 * scene.spec.rollout.analysis.scrape_seconds),
        promote_asked=asked == "Promote",
        abort_asked=asked == "Abort",
    )


def arm_facts(scene: Scene, revision: Revision, seen: ArmSeen) -> ArmFacts:
    """What the guards ask about one revision."""
    if seen.revision != revision.name:
        seen = ArmSeen()  # what was measured was another revision
    pods = tuple(PodFacts(pod.name, pod.ready, pod.restarts, pod.trouble) for pod in revision.pods if not pod.going)
    answers = [scene.seen.probes.get((pod.uid, pod.restarts), NO_PROBES) for pod in revision.pods if not pod.going]
    probe = ProbeFacts(
        passed=sum(item.passed for item in answers),
        failed=sum(item.failed for item in answers),
        unknown=sum(item.unknown for item in answers),
        message=next((item.message for item in answers if item.failed), ""),
    )
    return ArmFacts(pods, seen.recent, seen.last, seen.running, probe, seen.stalled)


def probe_unknown(scene: Scene, revision: Revision) -> str:
    """Why its pods cannot be asked; empty when they can."""
    answers = [scene.seen.probes.get((pod.uid, pod.restarts)) for pod in revision.pods if pod.taking_traffic]
    return next((item.message for item in answers if item and item.unknown), "")
