"""Asks a pod the operator's probe prompts before any user may: it must generate, and the answers must be sane."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from specfleet.judgement.guards import ProbeFacts
from specfleet.judgement.sanity import insane
from specfleet.rollout.world import Pod, Raw

MAX_TOKENS = 32
#: Several kinds of text, so that a drafter that accepts nothing makes the 200 drafts that tell, before its first user.
PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n",
    "2+2=",
    "Once upon a time there was",
    "The first five prime numbers are",
    '{"name": "Ada", "born":',
    "To make a cup of tea, first",
    "SELECT name FROM users WHERE",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The body of a 200, or why there is none: `wrong` is the server's fault, otherwise nobody could be asked."""

    body: dict[str, Any] | None = None
    why: str = ""
    wrong: bool = False


#: (namespace, pod, frozen payload of its revision, request body) -> answer; bounded in time, raises nothing.
Ask = Callable[[str, Pod, Raw, dict[str, Any]], Awaitable[Answer]]


async def probe(ask: Ask, namespace: str, pod: Pod, payload: Raw) -> ProbeFacts:
    """Ask every prompt in turn, greedily; stop at the first that is wrong or cannot be asked."""
    for passed, prompt in enumerate(PROMPTS):
        body = {"model": payload.get("model", ""), "prompt": prompt, "max_tokens": MAX_TOKENS, "temperature": 0}
        answer = await ask(namespace, pod, payload, body)
        if answer.body is None and not answer.wrong:
            return ProbeFacts(passed, 0, 1, f"{pod.name}: {answer.why}")
        if fault := answer.why or _fault(answer.body):
            return ProbeFacts(passed, 1, 0, f"{pod.name} to {prompt!r}: {fault}")
    return ProbeFacts(len(PROMPTS), 0, 0, "")


def _fault(body: dict[str, Any] | None) -> str:
    try:
        choice = (body or {})["choices"][0]
        return insane(str(choice["text"]), choice.get("finish_reason"))
    except (KeyError, IndexError, TypeError):
        return "not a completion"
