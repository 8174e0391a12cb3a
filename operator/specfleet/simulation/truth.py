"""Decides how a simulated server behaves: how long a step takes, which draft tokens are accepted, what memory fits."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from random import Random


@dataclass(frozen=True, slots=True)
class StepCost:
    """Step time of a dense model, in milliseconds: fixed + drafting + verifying + attending + prefilling.

    The shape is the linear fit that "Speculative Decoding: Performance or Illusion?" (arXiv 2601.11580) publishes for
    vLLM on H100, `5.886 + 0.0210·b·(k+1) + 3.93e-5·KV + 1.21`, scaled by 1.6: the public step times of AMD's Instinct
    parts without speculation start at 11 to 12 ms with four requests (vLLM blog, 2026-07-13). The drafter's pass and
    the prefill rate are assumptions in proportion (one layer of some eighty; about 25 000 prompt tokens a second).
    """

    fixed: float = 11.35
    drafting: float = 0.40  # once for every step that drafts
    draft_pass: float = 0.20  # for every pass of the drafter
    verified_token: float = 0.0336
    kv_token: float = 6.3e-5
    prefill_token: float = 0.040
    jitter: float = 0.02  # relative standard deviation between steps
    spread: float = 0.01  # relative standard deviation between servers


DENSE = StepCost()


@dataclass(frozen=True, slots=True)
class Load:
    """What one engine step works on: decoding requests, draft tokens over all of them, KV tokens, prompt tokens."""

    batch: int
    draft_tokens: int
    passes: int
    kv_tokens: int = 0
    prefill_tokens: int = 0


def step_seconds(cost: StepCost, load: Load) -> float:
    """Duration of one step in seconds, before jitter."""
    drafting = cost.drafting + cost.draft_pass * load.passes if load.draft_tokens else 0.0
    verifying = cost.verified_token * (load.batch + load.draft_tokens)
    milliseconds = cost.fixed + drafting + verifying + cost.kv_token * load.kv_tokens
    return (milliseconds + cost.prefill_token * load.prefill_tokens) / 1000


@dataclass(frozen=True, slots=True)
class Drafter:
    """What a speculation method means for cost and memory.

    passes: "token" (one pass per proposed token), "block" (one pass for all of them) or "none".
    kv_share: part of the KV cache that the drafter takes: its layers over the target's (0 where it shares or has none).
    ease: shift of every acceptance logit against EAGLE-3.
    decay: loss of logit per position, as the drafter feeds on its own guesses.
    """

    passes: str = "token"
    kv_share: float = 0.031
    ease: float = 0.0
    decay: float = 0.08


DRAFTERS: dict[str, Drafter] = {
    "mtp": Drafter(kv_share=0.02, ease=0.3),
    "eagle": Drafter(ease=-0.3),
    "eagle3": Drafter(),
    "dflash": Drafter(passes="block", kv_share=0.139, decay=0.2),
    "dspark": Drafter(passes="block", kv_share=0.139, ease=0.1, decay=0.16),
    "draft_model": Drafter(kv_share=0.143, decay=0.05),
    "ngram": Drafter(passes="none", kv_share=0.0, ease=0.4, decay=0.0),
    "ngram_gpu": Drafter(passes="none", kv_share=0.0, ease=0.4, decay=0.0),
    "suffix": Drafter(passes="none", kv_share=0.0, ease=0.5, decay=0.0),
    "medusa": Drafter(passes="block", kv_share=0.0, ease=-0.3, decay=0.3),
}
LOOKUP = frozenset({"ngram", "ngram_gpu", "suffix"})  # they propose only where the text repeats itself
SCHEDULED = frozenset({"mtp", "eagle", "eagle3"})  # the others ignore a schedule by batch size (vllm#32374, 0.32)

KV_BLOCKS = 24_000  # of BLOCK_SIZE tokens, without a drafter
BLOCK_SIZE = 16


def kv_blocks(method: str | None, share: float = 1.0) -> int:
    """KV blocks that fit beside the drafter of `method` (None: no speculation) into a share of the memory."""
    return int(KV_BLOCKS * share * (1 - (0.0 if method is None else DRAFTERS[method].kv_share)))


@dataclass(frozen=True, slots=True)
class Workload:
    """How predictable one kind of text is.

    ease: mean logit of acceptance of a token that EAGLE-3 proposes first.
    repeats: share of steps in which a lookup method finds something to propose.
    """

    ease: float
    repeats: float


WORKLOADS: dict[str, Workload] = {
    "chat": Workload(ease=0.85, repeats=0.25),
    "writing": Workload(ease=0.45, repeats=0.15),
    "rag": Workload(ease=1.4, repeats=0.55),
    "math": Workload(ease=2.15, repeats=0.40),
    "code": Workload(ease=2.1, repeats=0.50),
}
_MARKER = re.compile(r"\[workload=([a-z]+)\]")
_KEYWORDS = {
    "code": re.compile(r"```|\bdef \w+\(|\b(python|function|class|refactor|unit test)\b", re.I),
    "math": re.compile(r"\b(prove|equation|integral|theorem|solve for)\b|\d+\s*[-+*/]\s*\d+\s*=", re.I),
    "rag": re.compile(r"\b(context:|according to the (document|passage))", re.I),
    "writing": re.compile(r"\b(poem|story|essay|novel)\b", re.I),
}


def workload_of(prompt: str) -> str:
    """Name of the workload of a prompt: its `[workload=...]` marker if that is known, else by keyword, else chat."""
    marker = _MARKER.search(prompt)
    if marker and marker[1] in WORKLOADS:
        return marker[1]
    return next((name for name, pattern in _KEYWORDS.items() if pattern.search(prompt)), "chat")


REQUEST_SPREAD = 0.55  # standard deviation of a request's mean logit around its workload's
TOKEN_SPREAD = 1.6  # standard deviation of a token's logit within its request
CORRELATION = 0.5  # of neighbouring tokens' difficulty
TEMPERATURE_COST = 0.15  # logit lost at temperature 1


@dataclass(slots=True)
class Difficulty:
    """The tokens that one request will emit, each with its own logit of being guessed and the draw that decides it.

    Neighbours are alike, so where a draft was refused the next tokens tend to be hard too. A longer draft runs through
    the easy stretches in fewer steps and therefore starts more of its drafts at the hard ones: positions that two
    proposal lengths have in common read lower with the longer one, as on AMD's published panels. Nothing else in the
    model puts that effect there.
    """

    random: Random
    ease: float
    repeats: float = 1.0
    _tokens: list[tuple[float, float]] = field(default_factory=list)
    _state: float | None = None

    def ahead(self, count: int) -> list[tuple[float, float]]:
        """(logit, uniform draw) of the next `count` tokens, without passing them."""
        while len(self._tokens) < count:
            self._tokens.append((self.ease + self._next_state(), self.random.random()))
        return self._tokens[:count]

    def passed(self, count: int) -> None:
        """The request has emitted `count` tokens."""
        del self._tokens[:count]

    def _next_state(self) -> float:
        shock = self.random.gauss(0.0, TOKEN_SPREAD)
        if self._state is None:
            self._state = shock
        else:
            self._state = CORRELATION * self._state + math.sqrt(1 - CORRELATION**2) * shock
        return self._state


def difficulty(random: Random, workload: str, method: str | None, temperature: float = 0.0) -> Difficulty:
    """The difficulty of one request's tokens for the drafter of `method`, with the request's own mean."""
    kind = WORKLOADS[workload]
    ease = kind.ease + random.gauss(0.0, REQUEST_SPREAD) - TEMPERATURE_COST * temperature
    shift = DRAFTERS[method].ease if method is not None else 0.0
    return Difficulty(random=random, ease=ease + shift, repeats=kind.repeats if method in LOOKUP else 1.0)


def proposed(tokens: Difficulty, method: str, length: int) -> int:
    """How many tokens the drafter proposes: `length`, but a lookup method finds nothing, or less, at times."""
    if method not in LOOKUP:
        return length
    if tokens.random.random() >= tokens.repeats:
        return 0
    return length if tokens.random.random() < 0.9 else tokens.random.randint(1, length)


def accepted(tokens: Difficulty, method: str, length: int, scale: float = 1.0) -> int:
    """How many of `length` proposed tokens the target accepts; `scale` multiplies each token's probability."""
    decay = DRAFTERS[method].decay
    for position, (logit, draw) in enumerate(tokens.ahead(length)):
        if draw >= scale / (1 + math.exp(decay * position - logit)):
            return position
    return length
