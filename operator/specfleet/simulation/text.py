"""Decides what a simulated model answers: deterministic pseudo words, sums worked out, a stop in its place."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from random import Random

_ONSETS = ["b", "br", "c", "ch", "d", "f", "g", "gr", "h", "k", "l", "m", "n", "p", "pr", "r", "s", "st", "t", "v", "w"]
_VOWELS = ["a", "e", "i", "o", "u", "ai", "ea"]
_CODAS = ["", "", "n", "r", "s", "t", "l", "nd"]
_SUM = re.compile(r"(\d+)\s*([-+*x×])\s*(\d+)\s*=?\s*\??\s*$")
GARBAGE = "!"
CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Wish:
    """What a request asks for. stop: texts at which the answer ends, themselves left out. keys: those of the JSON
    object that the answer has to be, None where it may be any text."""

    prompt: str
    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    keys: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """The whole answer: `tokens[i]` is the text of token i ("" where a stop text swallowed it), and why it ends."""

    tokens: tuple[str, ...]
    finish_reason: str
    stop_reason: str | None = None


def count_tokens(text: str) -> int:
    """Tokens of a prompt, at least one."""
    return max(1, -(-len(text) // CHARACTERS_PER_TOKEN))


def _word(random: Random) -> str:
    parts = [random.choice(_ONSETS) + random.choice(_VOWELS) for _ in range(random.choice((1, 1, 2)))]
    return " " + "".join(parts) + random.choice(_CODAS)


def _sum(prompt: str) -> str | None:
    """The result where the prompt ends in a sum such as `2+2=`, else None."""
    found = _SUM.search(prompt[-60:])
    if found is None:
        return None
    left, sign, right = int(found[1]), found[2], int(found[3])
    return str({"+": left + right, "-": left - right}.get(sign, left * right))


def _cut(tokens: list[str], wish: Wish) -> Reply | None:
    """The reply ended at the first stop text, or None where none occurs."""
    text = ""
    for index, token in enumerate(tokens):
        text += token
        hit = next((stop for stop in wish.stop if stop in text), None)
        if hit is not None and index + 1 >= wish.min_tokens:
            return Reply(_clipped(tokens[: index + 1], text.index(hit)), "stop", hit)
    return None


def _clipped(tokens: list[str], characters: int) -> tuple[str, ...]:
    """`tokens` with nothing after the first `characters` of their text."""
    clipped = []
    for token in tokens:
        clipped.append(token[: max(0, characters)])
        characters -= len(token)
    return tuple(clipped)


def reply(wish: Wish, random: Random, garbage: bool = False) -> Reply:
    """The answer to `wish`; equal for equal wishes and equally seeded `random`."""
    if wish.keys is not None and not garbage:
        return _object(wish, wish.keys, random)
    result = _sum(wish.prompt)
    natural = 2 if result is not None else min(1200, max(8, int(random.lognormvariate(4.8, 0.7))))
    length = wish.max_tokens if wish.ignore_eos else min(wish.max_tokens, max(natural, wish.min_tokens))
    tokens = [GARBAGE if garbage else _word(random) for _ in range(length)]
    if result is not None and not garbage:
        tokens[:2] = [" " + result, "."][:length]
    ended = "length" if length >= wish.max_tokens else "stop"
    return (_cut(tokens, wish) if wish.stop else None) or Reply(tuple(tokens), ended)


def _object(wish: Wish, keys: tuple[str, ...], random: Random) -> Reply:
    """A JSON object with these keys, cut where it has too many tokens."""
    written = json.dumps({key: _word(random).strip() for key in keys})
    size = CHARACTERS_PER_TOKEN
    tokens = tuple(written[at : at + size] for at in range(0, len(written), size))
    return Reply(tokens[: wish.max_tokens], "stop" if len(tokens) <= wish.max_tokens else "length")
