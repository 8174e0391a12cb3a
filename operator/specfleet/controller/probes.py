"""Asks pods the probe prompts that a plan wants asked, and keeps what they said until they are gone."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specfleet.judgement.agreement import Answers
from specfleet.judgement.guards import ProbeFacts
from specfleet.judgement.questions import BUILT_IN, Kind, Question, text_of
from specfleet.rollout.probing import Asking
from specfleet.rollout.world import Life, Pod, Raw
from specfleet.telemetry.asked import NOTHING, Asked

PROBES_AT_ONCE = 64  # pods that are asked at a time; apart from scrapes, since a stuck pod is asked for minutes
OF_ONE_SDD = 16  # of those: a fleet that is slow to answer leaves room for the others
MAX_ASKING = 600.0  # seconds for all prompts of one asking, each of which has its own limit
KEPT_ASKINGS = 2  # of a pod: a lone pod of stable is compared with itself
MAX_PROMPT = 1 << 16  # tokens that a server may say a prompt had, with its template
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """The body of a 200, or why there is none: `wrong` is the server's fault, otherwise nobody could be asked.
    `status` is the HTTP status, 0 where there was no answer."""

    body: dict[str, Any] | None = None
    why: str = ""
    wrong: bool = False
    status: int = 0

    @property
    def refused(self) -> bool:
        """The server has no such thing as was asked for."""
        return self.status in (400, 404)

    @property
    def no_chat(self) -> bool:
        """The model has no chat template, as vLLM says it; or the server no chat at all."""
        return self.status == 404 or (self.status == 400 and "chat template" in self.why.lower())


#: (namespace, pod, frozen payload of its revision, path, request body) -> answer; bounded in time, raises nothing.
Ask = Callable[[str, Pod, Raw, str, dict[str, Any]], Awaitable[Answer]]
Put = Callable[[str, Question, bool], Awaitable[Answer]]  # (path, question, by chat?) -> answer


@dataclass(frozen=True, slots=True)
class Interview:
    """What one asking came to; `answers` only where every built-in prompt was answered."""

    facts: ProbeFacts
    answers: Answers | None


@dataclass(slots=True)
class _Known:
    """What one life of a container has said. `since` is when it first answered everything well."""

    facts: ProbeFacts | None = None
    since: float | None = None
    answers: tuple[Answers, ...] = ()
    tried: float | None = None
    asked: Asked = NOTHING
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Probes:
    """The pods of one SDD. `slots` are shared by all, `own` are its part of them."""

    ask: Ask
    clock: Callable[[], float]
    slots: asyncio.Semaphore
    own: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(OF_ONE_SDD))
    _known: dict[Life, _Known] = field(default_factory=dict)

    def start(self, namespace: str, asking: Asking, done: Callable[[], None]) -> None:
        """Begin to ask a pod, unless it is being asked; `done` is called when it has answered."""
        known = self._known.setdefault(asking.pod.life, _Known())
        if known.task is None:
            known.task = asyncio.ensure_future(self._run(namespace, asking, known))
            known.task.add_done_callback(lambda task: self._done(known, task, done))

    def facts(self, scraped: float | None) -> dict[Life, ProbeFacts]:
        """What each pod's last asking came to. The first good news is settled when a scrape after it, and one before
        the first prompt, tell what was drafted for it: until then nobody knows whether the drafter is any good.
        `scraped` is when pods last were."""
        return {
            life: replace(known.facts, settled=known.since is None or (scraped is not None and scraped > known.since))
            for life, known in self._known.items()
            if known.facts
        }

    def answers(self) -> Mapping[Life, tuple[Answers, ...]]:
        """The last askings in which every built-in prompt was answered, the newest last."""
        return {life: known.answers for life, known in self._known.items() if known.answers}

    def tried(self) -> Mapping[Life, float]:
        """When an asking last did not come to that."""
        return {life: known.tried for life, known in self._known.items() if known.tried is not None}

    def asked(self, pod: Pod) -> Asked:
        """All that was asked of a pod in this life."""
        known = self._known.get(pod.life)
        return known.asked if known else NOTHING

    def keep(self, there: Iterable[Life]) -> None:
        """Forget all other pods."""
        for gone in self._known.keys() - set(there):
            self._cancel(self._known.pop(gone))

    def close(self) -> None:
        """Ask no more."""
        self.keep(())

    def _cancel(self, known: _Known) -> None:
        if known.task:
            known.task.cancel()

    def _done(self, known: _Known, task: asyncio.Task[None], done: Callable[[], None]) -> None:
        known.task = None
        if not task.cancelled():
            done()

    async def _run(self, namespace: str, asking: Asking, known: _Known) -> None:
        async def put(path: str, question: Question, chat: bool) -> Answer:
            body = question.body(str(asking.payload.get("model", "")), chat)
            known.asked = replace(known.asked, in_flight=question.max_tokens)
            answer = await self.ask(namespace, asking.pod, asking.payload, path, body)
            known.asked = _counted(known.asked, question, answer)
            return answer

        async with self.own, self.slots:
            try:
                async with asyncio.timeout(MAX_ASKING):
                    came = await interview(put, asking, serves=known.since is not None)
            except TimeoutError:
                came = _unknown(asking, 0, f"all prompts together took longer than {MAX_ASKING:.0f} s")
            except Exception as error:  # of ours: it must not be asked again at once, and not go unseen
                log.exception("asking %s", asking.pod.name)
                came = _unknown(asking, 0, type(error).__name__)
        now = self.clock()
        known.answers = (*known.answers, *((came.answers,) if came.answers else ()))[-KEPT_ASKINGS:]
        known.tried = None if came.answers else now
        if asking.judged:
            known.facts = replace(came.facts, at=now)
            if known.since is None and not (came.facts.failed or came.facts.unknown):
                known.since = now


async def interview(put: Put, asking: Asking, serves: bool = False) -> Interview:
    """Ask every question in turn, greedily; stop at the first that is wrong or cannot be asked. Answers that are not
    sane are compared with nothing: a stable revision that talks nonsense must not hold up the one that mends it.

    Of a pod that `serves`, having answered before, only an answer can be wrong: none in time, or a 5xx, may come of its
    load or its end, and is for the guards of errors and progress to judge.

    The first is put as chat, by which the pod shows whether it has a chat template; without one the others are
    completions. What a server says that it does not have is not asked of it, and no pass of it either.
    """
    chat, passed, texts = True, 0, list[str]()
    for question in asking.questions:
        if question.kind is Kind.TOOL and not chat:
            continue
        answer = await put(CHAT if chat else COMPLETIONS, question, chat)
        if chat and not passed and answer.no_chat:
            chat = False
            answer = await put(COMPLETIONS, question, chat)
        if question.optional and answer.refused:
            continue
        if answer.body is None and (not answer.wrong or (serves and not 0 < answer.status < 500)):
            return _unknown(asking, passed, answer.why)
        fault = answer.why or question.fault(answer.body or {})
        if fault:
            message = f"{asking.pod.name} to {question.prompt[:80]!r}: {fault}"
            return Interview(ProbeFacts(passed, 1, 0, message, asked=asking.questions), None)
        passed += 1
        if question in BUILT_IN:
            texts.append(text_of(answer.body or {}))
    answers = Answers(chat, tuple(texts)) if len(texts) == len(BUILT_IN) else None
    return Interview(ProbeFacts(passed, 0, 0, "", asked=asking.questions), answers)


def _unknown(asking: Asking, passed: int, why: str) -> Interview:
    return Interview(ProbeFacts(passed, 0, 1, f"{asking.pod.name}: {why}", asked=asking.questions), None)


def _counted(asked: Asked, question: Question, answer: Answer) -> Asked:
    """The ledger after an answer. A server that does not tell its tokens is believed to have used what it might."""
    usage = (answer.body or {}).get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    finished = answer.body is not None
    return Asked(
        requests=asked.requests + (finished or answer.status > 0),
        errors=asked.errors + (answer.status >= 500),
        finished=asked.finished + finished,
        prompt_tokens=asked.prompt_tokens + _tokens(usage, "prompt_tokens", 0, MAX_PROMPT),
        generation_tokens=asked.generation_tokens
        + (_tokens(usage, "completion_tokens", question.max_tokens, question.max_tokens) if finished else 0),
    )


def _tokens(usage: Mapping[str, Any], name: str, otherwise: int, most: int) -> int:
    count = usage.get(name)
    known = isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= most
    return count if isinstance(count, int) and known else otherwise
