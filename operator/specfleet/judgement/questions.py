"""What a pod is asked to find out whether it answers correctly, and what is wrong with an answer. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from specfleet.api.patterns import found
from specfleet.judgement.sanity import bad_call, clip, insane, no_object

MAX_TOKENS = 32
CALL_TOKENS = 64  # a tool call of one argument has about 30 with what frames it
MAX_TEXT = 4096  # characters of an answer that are kept: a token of the longest vocabularies has 128 or so
TOOL = "get_weather"
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": TOOL,
            "description": "The weather of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


class Kind(StrEnum):
    """What an answer is looked at for."""

    TEXT = "text"
    JSON = "json"  # with response_format json_object
    TOOL = "tool"  # with one tool, which may be called


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt; `expect` is an RE2 pattern that must be found in the answer, empty where any sane one will do."""

    prompt: str
    kind: Kind = Kind.TEXT
    expect: str = ""

    @property
    def max_tokens(self) -> int:
        """After so many tokens the answer is cut."""
        return CALL_TOKENS if self.kind is Kind.TOOL else MAX_TOKENS

    @property
    def optional(self) -> bool:
        """A server that refuses it does not have what it asks for; that is no fault."""
        return self.kind is not Kind.TEXT

    def body(self, model: str, chat: bool) -> dict[str, Any]:
        """The request to /v1/chat/completions or /v1/completions, greedy."""
        asked: dict[str, Any] = {"model": model, "max_tokens": self.max_tokens, "temperature": 0}
        asked |= {"messages": [{"role": "user", "content": self.prompt}]} if chat else {"prompt": self.prompt}
        if self.kind is Kind.JSON:
            asked["response_format"] = {"type": "json_object"}
        if self.kind is Kind.TOOL:
            asked |= {"tools": _TOOLS, "tool_choice": "auto"}
        return asked

    def fault(self, answer: Mapping[str, Any]) -> str:
        """What is wrong with the server's answer, in a few words; empty when nothing is."""
        try:
            choice = answer["choices"][0]
            reason = choice.get("finish_reason")
            if self.kind is Kind.TOOL:
                return bad_call(choice["message"], reason, TOOL)
            if self.kind is Kind.JSON:
                return no_object(_content(choice), reason)
            return insane(text := _text(choice), reason) or self._unexpected(text)
        except (AttributeError, IndexError, KeyError, TypeError, RecursionError):
            return "not a completion"

    def _unexpected(self, text: str) -> str:
        if not self.expect or found(self.expect, text):
            return ""
        return f"{clip(text)!r}, in which {clip(self.expect)!r} is not found"


#: Asked of every pod. Openings that a base model goes on with and a chat model has much to say about: an instruction
#: may make the former end at once, and a question the latter after three words. Of several kinds, so that a drafter of
#: which nothing is accepted makes the 200 drafts that tell, before its first user.
PROMPTS = (
    "The first twenty prime numbers are",
    "def fibonacci(n):\n",
    "Paris, the capital of France, is known for",
    "Counting up: one, two, three, four",
    "To make a cup of tea, first",
    "SELECT name FROM users WHERE",
    '{"name": "Ada", "born":',
    "Once upon a time there was",
)
BUILT_IN = tuple(Question(prompt) for prompt in PROMPTS)
JSON_QUESTION = Question("Name the capital of France as a JSON object with the keys city and country.", Kind.JSON)
TOOL_QUESTION = Question("What is the weather in Paris? Use the tool.", Kind.TOOL)


def text_of(answer: Mapping[str, Any]) -> str:
    """The text of an answer without a fault, cut where so few tokens cannot reach; of a model that thinks its thoughts
    too."""
    return _text(answer["choices"][0])[:MAX_TEXT]


def _text(choice: Mapping[str, Any]) -> str:
    if "text" in choice:
        return _string(choice, "text")
    message = choice["message"]
    return (_string(message, "reasoning") or _string(message, "reasoning_content")) + _string(message, "content")


def _content(choice: Mapping[str, Any]) -> str:
    """Without thoughts, which need not keep to a format."""
    return _string(choice, "text") if "text" in choice else _string(choice["message"], "content")


def _string(said: Mapping[str, Any], key: str) -> str:
    """A text of an answer, empty where it is null or absent; raises TypeError for what is no text."""
    text = said.get(key)
    if text is not None and not isinstance(text, str):
        raise TypeError(f"{key} is no text")
    return text or ""
