"""Whether an answer to a probe prompt is sane: text that is not one thing over and over, JSON that is JSON. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

FINISHED = ("stop", "length")
REPEATS = 8  # of one word in a row: a greedy model may stutter, a broken one does nothing else
SHOWN = 40  # characters of an answer that a message quotes


def insane(text: str, finish_reason: object) -> str:
    """What is wrong with a completion, in a few words; empty when it is sane."""
    if not text.strip():
        return "an empty answer"
    if finish_reason not in FINISHED:
        return _ended(finish_reason)
    words = text.split()
    if len(words) >= REPEATS and len(set(words)) == 1:
        return f"one word {len(words)} times: {words[0][:20]!r}"
    packed = "".join(words)
    if len(packed) >= 2 * REPEATS and len(set(packed)) == 1:
        return f"one character {len(packed)} times: {packed[0]!r}"
    return ""


def no_object(text: str, finish_reason: object) -> str:
    """What is wrong with an answer that was asked for as a JSON object; of one that was cut only its beginning is
    looked at, which may still be white space."""
    if finish_reason not in FINISHED:
        return _ended(finish_reason)
    whole = finish_reason == "stop"
    fine = _is_object(text) if whole else text.lstrip()[:1] in ("", "{")
    return "" if fine else f"no JSON object: {clip(text)!r}"


def bad_call(message: Mapping[str, Any], finish_reason: object, offered: str) -> str:
    """What is wrong with the tool calls of a chat message; a model need not call, and a call that was cut is not read.
    Raises what a malformed message raises (AttributeError, KeyError, TypeError)."""
    if finish_reason not in (*FINISHED, "tool_calls"):
        return _ended(finish_reason)
    calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
    if finish_reason == "length":
        return ""
    for call in calls:
        function = call["function"]
        if function["name"] != offered:
            return f"calls {clip(str(function['name']))!r}, which was not offered"
        if not _is_object(function["arguments"]):
            return f"arguments that are no JSON object: {clip(str(function['arguments']))!r}"
    return ""


def _ended(finish_reason: object) -> str:
    return f"finish_reason {clip(repr(finish_reason))}"


def clip(text: str) -> str:
    """As much of an answer as a message quotes."""
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _is_object(text: object) -> bool:
    try:
        return isinstance(json.loads(str(text)), dict)
    except (ValueError, RecursionError):
        return False
