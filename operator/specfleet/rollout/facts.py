"""Gathers what one look at a canary knows: guards, verdict, orders, the user's policy. Pure."""

from dataclasses import replace

from specfleet.api.reasons import Reason
from specfleet.judgement.guards import ArmFacts, Fit, PodFacts, ProbeFacts, first_failure
from specfleet.judgement.judge import judge
from specfleet.judgement.verdict import Verdict
from specfleet.rollout import margins
from specfleet.rollout.capacity import may_borrow, steps_of
from specfleet.rollout.likeness import drafts_alike, predicted_loss
from specfleet.rollout.memory import Rollout
from specfleet.rollout.note import Note
from specfleet.rollout.orders import ordered
from specfleet.rollout.probing import agreeing
from specfleet.rollout.scene import ArmSeen, Scene
from specfleet.rollout.turn import Facts, Policy
from specfleet.rollout.world import Revision, rfc3339
from specfleet.telemetry.evidence import Evidence

NO_PROBES = ProbeFacts(0, 0, 0, "")
RESOLVE_AGAIN = 60.0  # seconds until a Service that a gateway could not use is tried again
SPLIT_REQUESTS = 30  # expected of the canary, before their absence says anything
SPLIT_LEAST = 0.05  # of what is expected
SPLIT_MOST = 2.0


def verdict(scene: Scene, stable: Revision, canary: Revision, evidence: Evidence, rollout: Rollout) -> Verdict:
    """The judge's verdict on the evidence, with the user's margins."""
    alike = drafts_alike(stable.payload, canary.payload)
    return judge(evidence, alike, margins.policy(scene.spec, margins.begun_with(rollout)))


def policy(scene: Scene, rollout: Rollout) -> Policy:
    """What the user asked of the rollout. A pod has the time to start that its own revision was made with."""
    wanted, canary, steps = scene.spec.rollout, scene.roles.canary, steps_of(scene.spec)
    last = rollout.step >= len(steps) - 1  # only there proof is asked for
    return Policy(
        steps=steps,
        bounds=scene.bounds(rollout.borrowed),
        paused=scene.spec.paused,
        max_blocks=margins.max_blocks(scene.spec),
        abort_inconclusive=wanted.on_inconclusive == "Abort",
        unresolvable=margins.unresolvable(scene.spec, begun=margins.begun_with(rollout)) if last else {},
        startup_seconds=(canary and canary.frozen("startupSeconds")) or scene.spec.pod.startup_seconds,
    )


def canary_facts(
    scene: Scene, stable: Revision, canary: Revision, rollout: Rollout, seen: Verdict, evidence: Evidence
) -> Facts:
    """All that `advance` asks about; `seen` is the verdict on the evidence so far."""
    asked, wanted = ordered(scene, canary), scene.spec.rollout
    return Facts(
        canary=canary,
        stable=stable,
        failure=first_failure(coming_facts(scene, stable, canary), arm_facts(scene, stable, scene.seen.stable)),
        verdict=seen,
        blocks=evidence.seen,
        probed=scene.probed(canary.pods),
        probe_unknown=probe_unknown(scene, canary),
        carrying=canary.name in scene.routing.carriers,
        third=any(revision.alive for revision in scene.roles.others),
        since=scene.seen.since,
        # Once it is proven nothing is compared any more, and the pods of stable that still go may be dark.
        unreachable=scene.seen.canary.unreachable or ("" if rollout.promoting else scene.seen.stable.unreachable),
        dark=scene.seen.canary.unreachable_for > max(60.0, 4.0 * scene.spec.rollout.analysis.scrape_seconds),
        promote_asked=asked == "Promote",
        abort_asked=asked == "Abort",
        weight=scene.routing.percent(canary.name),
        cohort=scene.routing.cohort,
        pending=scene.routing.pending,
        unroutable=unroutable(scene, canary, rollout),
        split=split(scene, canary, rollout, evidence),
        drafts=scene.seen.canary.recent.drafts,
        still=scene.seen.canary.stalled > 0,
        # Where a surge was asked for, nobody speaks of lending.
        cannot_lend="" if rollout.borrowed or wanted.max_surge is not None else cannot_lend(scene),
        in_vain=in_vain(scene),
    )


def cannot_lend(scene: Scene) -> str:
    """Why stable could not give up a pod for a canary; empty if it could."""
    stable = scene.roles.stable
    if not may_borrow(scene.spec):
        limit = f"spec.rollout.maxUnavailable is {scene.spec.rollout.max_unavailable}"
        return f"{limit}: none of {scene.spec.replicas} may go; allow one, or free a GPU"
    return in_vain(scene) or scene.overload((stable.ready if stable else 0) - 1)


def in_vain(scene: Scene) -> str:
    """Why a pod that stable gives up would make no room: its node no longer has what the pod holds. Empty if it has, or
    where nobody knows."""
    stable, devices = scene.roles.stable, scene.seen.devices or {}
    lost = sorted(node for node, item in devices.items() if item.lost)
    here = [node for node in lost if stable and any(pod.node == node for pod in stable.pods)]
    return f"what leaves {here[0]} makes no room there" if here else ""


def unroutable(scene: Scene, canary: Revision, rollout: Rollout) -> Note | None:
    """Why no weight may go to the canary through a gateway now: no endpoint, or a gateway could not use its Service."""
    routing = scene.routing
    if not routing.gateway:
        return None
    if rollout.unresolved is not None and scene.now < rollout.unresolved + RESOLVE_AGAIN:
        again = rfc3339(rollout.unresolved + RESOLVE_AGAIN)
        text = f"a gateway could not use Service {canary.name}; it is tried again at {again}"
        return Note(Reason.ROUTE_REFS_NOT_RESOLVED, text)
    if (least := _least_weight(scene)) > scene.memory.base_weight:
        text = f"backend {scene.name} has weight {scene.memory.base_weight}; give it at least {least}"
        return Note(Reason.ROUTE_UNUSABLE, text)
    if not routing.endpoints.get(canary.name):
        return Note(Reason.ENDPOINTS_NOT_READY, f"Service {canary.name} has no ready endpoint")
    return None


def _least_weight(scene: Scene) -> int:
    """What our backend must weigh in the user's own rule, so that every step's part of it is a whole number."""
    if not scene.routing.foreign:
        return 1
    weights = [step.weight for step in steps_of(scene.spec) if step.weight]
    return -(-100 // min([*weights, *(100 - weight for weight in weights)]))


def split(scene: Scene, canary: Revision, rollout: Rollout, evidence: Evidence) -> Note | None:
    """Why the requests that the pods counted at this step are not the share that the route asks for.

    Callers inside the cluster use `Service <name>` and dilute the share, so only about nothing is too little.
    """
    asked = scene.routing.percent(canary.name)
    if not asked or asked == 100 or rollout.reached is None:
        return None
    mine, both, blocks = counted(rollout, evidence)
    expected = both * asked / 100
    if expected < SPLIT_REQUESTS or SPLIT_LEAST * expected <= mine <= SPLIT_MOST * expected + SPLIT_REQUESTS:
        return None
    seen = f"the canary got {mine:.0f} of {both:.0f} requests in {blocks} blocks"
    return Note(Reason.SPLIT_NOT_HONOURED, f"{seen}: {100 * mine / both:.1f}% where {asked}% was asked")


def counted(rollout: Rollout, evidence: Evidence) -> tuple[float, float, int]:
    """(the canary's requests, those of both arms, blocks) since the step was reached."""
    since = max(0, rollout.blocks_before + 1 - evidence.forgotten)  # the block in which the weight rose is mixed
    blocks = evidence.blocks[since:]
    mine, theirs = (sum(getattr(block, arm).http_requests for block in blocks) for arm in ("canary", "stable"))
    return mine, mine + theirs, len(blocks)


def arm_facts(scene: Scene, revision: Revision, seen: ArmSeen) -> ArmFacts:
    """What the guards ask about one revision."""
    if seen.revision != revision.name:
        seen = ArmSeen()  # what was measured was another revision
    pods = tuple(PodFacts(pod.name, pod.ready, pod.restarts, pod.trouble) for pod in revision.pods if not pod.going)
    answers = [scene.seen.probes.get(pod.life, NO_PROBES) for pod in revision.pods if not pod.going]
    probe = ProbeFacts(
        passed=sum(item.passed for item in answers),
        failed=sum(item.failed for item in answers),
        unknown=sum(item.unknown for item in answers),
        message=next((item.message for item in answers if item.failed or item.unknown), ""),
    )
    if not scene.seen.probing:
        probe = ProbeFacts(0, 0, 0, "probes are off")
    return ArmFacts(pods, seen.recent, seen.last, seen.running, probe, seen.stalled)


def fit(scene: Scene, stable: Revision, canary: Revision) -> Fit:
    """The KV caches of both arms' pods."""
    arms = ((scene.seen.canary, canary), (scene.seen.stable, stable))
    mine, theirs = (seen.kv_tokens if seen.revision == revision.name else None for seen, revision in arms)
    return Fit(mine, theirs, predicted_loss(stable.payload, canary.payload))


def exposed(scene: Scene, canary: Revision) -> bool:
    """Whether anybody's requests go to the canary's pods."""
    return canary.name in scene.routing.carriers or bool(scene.routing.cohort)


def coming_facts(scene: Scene, stable: Revision | None, canary: Revision) -> ArmFacts:
    """What they ask about the canary: how far it agrees with stable, too, and whether it fits."""
    return replace(
        arm_facts(scene, canary, scene.seen.canary),
        agreement=agreeing(scene),
        unasked=canary.ready - scene.probed(canary.pods),
        fit=fit(scene, stable, canary) if stable else None,
        serving=exposed(scene, canary) or scene.roles.undoing,
    )


def probe_unknown(scene: Scene, revision: Revision) -> str:
    """Why its pods cannot be asked; empty when they can."""
    answers = [scene.seen.probes.get(pod.life) for pod in revision.pods if pod.taking_traffic]
    return next((item.message for item in answers if item and item.unknown), "")
