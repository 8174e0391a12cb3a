"""Whether the canary's greedy answers are stable's, but for what the pods of stable differ in themselves. Pure.

Speculation keeps to what the target alone would say: greedily, a drafted token is kept only where the target would have
taken it, so a poor drafter costs speed and changes nothing. What does change an answer a little is the order in which
floats are summed, which follows from the batch and from how many tokens are verified at once: where two tokens are
about as likely, the other one is taken, and from there on the answer is another one. What a broken kernel or a wrong
quantisation changes is everything.

So the measure is how far an answer runs before it differs: the length of the common prefix, over that of the longer
answer, in characters. Not in words, of which source text, JSON or Japanese have few; nor in tokens, which the API does
not give.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import fmean

#: How far below that of stable's own pods a canary's agreement may be. Kernels that are right differ at near-ties:
#: greedy answers of one model under changing batches first part after a hundred tokens or so
#: (thinkingmachines.ai/blog/defeating-nondeterminism-in-llm-inference: 1000 answers, all alike for 102 tokens), which
#: is less than 1 % a token. Were it 1 %, eight answers of 32 tokens would agree in .85 ± .11 of their length, and a
#: shortfall of .5 would be three standard deviations away; an engine that is wrong agrees in a word or two, under .1.
MAX_SHORTFALL = 0.5


@dataclass(frozen=True, slots=True)
class Answers:
    """What a pod said to each of the built-in prompts in one asking, and whether it was asked by chat."""

    chat: bool
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the answers of the canary's worst pod agree with stable's: `canary`, and stable's own pods among
    themselves: `stable`, both 0..1. `said` and `stable_said` are the answers to the `prompt` that differs most."""

    pod: str
    canary: float
    stable: float
    prompt: int
    said: str
    stable_said: str

    @property
    def broken(self) -> bool:
        """The canary's answers differ far more than stable's own do."""
        return self.canary < self.stable - MAX_SHORTFALL


def shared(one: str, other: str) -> float:
    """Length of the common prefix over that of the longer text, 0..1; 1 if both are empty."""
    if one == other:  # nearly all greedy answers, and every pass asks
        return 1.0
    same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return same / max(len(one), len(other))


def agreement(canary: Mapping[str, Answers], stable: Sequence[Sequence[Answers]]) -> Agreement | None:
    """The agreement of the pod of the canary (by name) that agrees least. `stable` has the askings of each of its pods.

    None while either side is unknown: a pod of each must have answered, and two of stable's, or one of them twice.
    """
    own = [shared_all(one, other) for one, other in _pairs(stable) if one.chat == other.chat]
    last = [askings[-1] for askings in stable if askings]
    found = [_of(pod, mine, [each for each in last if each.chat == mine.chat]) for pod, mine in canary.items()]
    known = [item for item in found if item]
    if not own or not known:
        return None
    pod, agrees, prompt, said, stable_said = min(known, key=lambda item: item[1])
    return Agreement(pod, agrees, fmean(own), prompt, said, stable_said)


def shared_all(one: Answers, other: Answers) -> float:
    """Mean over the prompts of what two pods' answers share."""
    return fmean(map(shared, one.texts, other.texts))


def _pairs(stable: Sequence[Sequence[Answers]]) -> Iterable[tuple[Answers, Answers]]:
    """Pods with one another; one alone with itself at another time."""
    last = [askings[-1] for askings in stable if askings]
    return combinations(last, 2) if len(last) > 1 else (pair for askings in stable for pair in pairwise(askings))


def _of(pod: str, mine: Answers, stable: Sequence[Answers]) -> tuple[str, float, int, str, str] | None:
    """A pod's mean agreement with all of stable's, and the prompt on which it is least with one of them."""
    found = [(shared(mine.texts[at], text), at, text) for other in stable for at, text in enumerate(other.texts)]
    if not found:
        return None
    _, prompt, stable_said = min(found)
    return pod, fmean(share for share, _, _ in found), prompt, mine.texts[prompt], stable_said
