"""Which pods are asked which probe prompts now, and how far the canary's greedy answers must be stable's. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from specfleet.api import engine_args
from specfleet.judgement.agreement import Agreement, Answers, agreement
from specfleet.judgement.guards import ProbeFacts
from specfleet.judgement.questions import BUILT_IN, JSON_QUESTION, TOOL_QUESTION, Question
from specfleet.rollout.likeness import answers_alike
from specfleet.rollout.scene import Scene
from specfleet.rollout.world import Pod, Raw, Revision

#: Seconds from one good answer to the next asking: faults that grow with time (a poisoned prefix cache, a drafter that
#: decays) are rare and slow, and ten answers of 32 tokens in five minutes are about one token a second.
ASK_AGAIN = 300.0
RETRY = 15.0  # seconds until a pod that could not be asked is asked again
COMPARED_PODS = 4  # of stable: more would cost more and tell little more of what its own noise is

_TOOL_FLAG = "--enable-auto-tool-choice"


@dataclass(frozen=True, slots=True)
class Asking:
    """One pod to be asked, with the frozen payload of its revision. Of pods that are not `judged` only the text of the
    answers is wanted."""

    pod: Pod
    payload: Raw
    questions: tuple[Question, ...]
    judged: bool


def askings(scene: Scene) -> tuple[Asking, ...]:
    """Whom to ask what at this pass; a pod that is being asked is named again until it has answered."""
    roles = scene.roles
    coming = roles.canary or (roles.target if roles.stable is None else None)
    if coming is None or not scene.seen.probing:
        return ()
    return (*_due(scene, coming), *_compared(scene))


def questions_of(scene: Scene, revision: Revision) -> tuple[Question, ...]:
    """The built-in prompts, what its arguments enable, and the user's own."""
    flags = {argument.flag for argument in engine_args.parse(tuple(revision.payload.get("args", ())))}
    tools = (TOOL_QUESTION,) if any(_is_tool_flag(flag) for flag in flags) else ()
    own = (Question(probe.prompt, expect=probe.expect) for probe in scene.spec.rollout.probes)
    return (*BUILT_IN, JSON_QUESTION, *tools, *own)


def agreeing(scene: Scene) -> Agreement | None:
    """How far the canary's answers are stable's; None where that is unknown, or no agreement is to be expected."""
    roles = scene.roles
    if roles.canary is None or roles.stable is None or not _to_compare(roles.stable, roles.canary, roles.undoing):
        return None
    mine = {pod.name: answers[-1] for pod in roles.canary.pods if not pod.going and (answers := _answers(scene, pod))}
    return agreement(mine, [_answers(scene, pod) for pod in roles.stable.pods if not pod.going])


def _to_compare(stable: Revision, canary: Revision, undoing: bool) -> bool:
    """A stable revision that is rejected is no measure of the one that returns."""
    return not undoing and answers_alike(stable.payload, canary.payload)


def _due(scene: Scene, revision: Revision) -> Iterator[Asking]:
    questions = questions_of(scene, revision)
    for pod in _asked_pods(revision):
        known = scene.seen.probes.get(pod.life)
        if known is None or known.asked != questions or scene.now >= _again(known):
            yield Asking(pod, revision.payload, questions, judged=True)


def _again(known: ProbeFacts) -> float:
    """When a pod is asked again; one that failed never, its failure has consequences."""
    if known.failed:
        return float("inf")
    return known.at + (RETRY if known.unknown else ASK_AGAIN)


def _compared(scene: Scene) -> Iterator[Asking]:
    """Stable's first pods, once each while there is a canary, for which answers are compared; one alone twice."""
    stable, canary = scene.roles.stable, scene.roles.canary
    if stable is None or canary is None or not _to_compare(stable, canary, scene.roles.undoing):
        return
    pods = list(_asked_pods(stable))[:COMPARED_PODS]
    for pod in pods:
        tried = scene.seen.tried.get(pod.life)
        wanting = len(_answers(scene, pod)) < (2 if len(pods) == 1 else 1)
        if wanting and (tried is None or scene.now >= tried + RETRY):
            yield Asking(pod, stable.payload, BUILT_IN, judged=False)


def _asked_pods(revision: Revision) -> Iterable[Pod]:
    return (pod for pod in revision.pods if pod.taking_traffic)


def _answers(scene: Scene, pod: Pod) -> Sequence[Answers]:
    return scene.seen.answers.get(pod.life, ())


def _is_tool_flag(flag: str) -> bool:
    """As the parser reads it: underscores, and any prefix that is no other flag's."""
    dashed = flag.replace("_", "-")
    return _TOOL_FLAG.startswith(dashed) and dashed.startswith("--enable-au")
