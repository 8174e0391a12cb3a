"""Answers /v1/completions, /v1/chat/completions and /v1/models as vLLM words them."""

from __future__ import annotations

import hmac
import json
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from aiohttp import web
from pump import Live, Pump

from specfleet.simulation import text, truth
from specfleet.simulation.commandline import Options
from specfleet.simulation.dials import Dials
from specfleet.simulation.engine import Job

UNSUPPORTED = "is not supported with speculative decoding."
NO_TEMPLATE = (
    "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if the "
    "tokenizer does not define one."
)
NO_TOOLS = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


class Problem(Exception):
    """An answer other than 200, in vLLM's error format."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": status}}


@dataclass(slots=True)
class State:
    """What the handlers share. name: the pod's; it goes into every answer's x-served-by."""

    options: Options
    name: str
    dials: Dials
    random: Random
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was understood."""

    wish: text.Wish
    model: str
    stream: bool
    usage: bool
    temperature: float
    chat: bool
    tool: str = ""  # the one that is called


def _number(body: dict[str, Any], name: str, default: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Problem(400, f"1 validation error: '{name}': Input should be a valid number", param=name)
    return value


def _prompt(body: dict[str, Any]) -> str:
    """The prompt of a completion as text: a string, a list with one, or token ids."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return "".join(f"{token % 10_000:04d}" for token in prompt)
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise Problem(
            400, "1 validation error: 'prompt': Field required (the simulated server takes one)", param="prompt"
        )
    return prompt


def _messages(body: dict[str, Any]) -> str:
    """The prompt of a chat: contents of its messages, parts of type text joined."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise Problem(400, "1 validation error: 'messages': Field required", param="messages")
    contents = [message.get("content") or "" for message in messages]
    parts = [
        c if isinstance(c, str) else "".join(p.get("text", "") for p in c if isinstance(p, dict)) for c in contents
    ]
    return "\n".join(parts)


def _wants_object(body: dict[str, Any]) -> bool:
    wanted = body.get("response_format")
    return isinstance(wanted, dict) and wanted.get("type") == "json_object"


def _tool(body: dict[str, Any]) -> tuple[str, tuple[str, ...]] | None:
    """Name and required arguments of the tool that a chat gets called: the first; None where none is offered."""
    tools = body.get("tools")
    if not tools or body.get("tool_choice") == "none":
        return None
    try:
        function = tools[0]["function"]
        return str(function["name"]), tuple((function.get("parameters") or {}).get("required") or ())
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise Problem(400, "1 validation error: 'tools': Input should be a list of functions", param="tools") from error


class Completions:
    """The OpenAI handlers over one pump."""

    def __init__(self, state: State, pump: Pump) -> None:
        self.state = state
        self.pump = pump

    def routes(self) -> list[web.RouteDef]:
        """Routes of the OpenAI API."""
        return [
            web.post("/v1/completions", self._guarded(self._complete, chat=False)),
            web.post("/v1/chat/completions", self._guarded(self._complete, chat=True)),
            web.get("/v1/models", self._guarded(self._models)),
        ]

    def _guarded(self, handler: Callable[..., Awaitable[web.StreamResponse]], **given: Any) -> Any:
        """`handler` behind the API key, with problems turned into answers."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            if not self._authorized(request):
                return web.json_response({"error": "Unauthorized"}, status=401)
            try:
                return await handler(request, **given)
            except Problem as problem:
                return web.json_response(problem.body, status=problem.status)

        return guarded

    def _authorized(self, request: web.Request) -> bool:
        keys = self.state.options.api_keys
        given = request.headers.get("Authorization", "").removeprefix("Bearer ").encode()
        return not keys or any(hmac.compare_digest(given, key.encode()) for key in keys)

    async def _models(self, request: web.Request) -> web.Response:
        options = self.state.options
        facts = {
            "object": "model",
            "created": int(time.time()),
            "owned_by": "vllm",
            "root": options.model,
            "parent": None,
        }
        data = [{"id": name, **facts, "max_model_len": options.max_model_len} for name in options.served_names]
        return web.json_response({"object": "list", "data": data})

    async def _complete(self, request: web.Request, chat: bool) -> web.StreamResponse:
        asked = await self._understand(request, chat)
        if self.state.draining:
            raise Problem(500, "cannot schedule new futures after shutdown", "InternalServerError")
        if self.state.random.random() < self.state.dials.errors:
            raise Problem(500, "Internal server error", "InternalServerError")
        reply = text.reply(asked.wish, self._seeded("reply", asked), self.state.dials.garbage)
        live = Live(asked.stream, has_left=lambda: request.transport is None or request.transport.is_closing())
        self.pump.submit(self._job(asked, reply), live)
        try:
            answer = Answer(asked, reply, live)
            return await (answer.stream(request) if asked.stream else answer.whole())
        finally:
            self.pump.leave(live)

    async def _understand(self, request: web.Request, chat: bool) -> Asked:
        try:
            body = await request.json()
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise Problem(400, f"[{{'type': 'json_invalid', 'msg': 'JSON decode error', 'ctx': '{error}'}}]") from error
        if not isinstance(body, dict):
            raise Problem(400, "1 validation error: Input should be a valid dictionary")
        self._allowed(body)
        stop = body.get("stop") or ()
        prompt = _messages(body) if chat else _prompt(body)
        tool = _tool(body) if chat else None
        if chat and not self.state.dials.chat_template:
            raise Problem(400, NO_TEMPLATE)
        if tool and not self.state.options.tools:
            raise Problem(400, NO_TOOLS)
        wish = text.Wish(
            prompt=prompt,
            max_tokens=self._max_tokens(body, chat, text.count_tokens(prompt)),
            min_tokens=int(_number(body, "min_tokens", 0)),
            ignore_eos=bool(body.get("ignore_eos")),
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            keys=tool[1] if tool else ("answer",) if _wants_object(body) else None,
        )
        usage = bool((body.get("stream_options") or {}).get("include_usage"))
        temperature = _number(body, "temperature", 1.0)
        model = body.get("model") or self.state.options.served_names[0]
        return Asked(wish, model, bool(body.get("stream")), usage, temperature, chat, tool[0] if tool else "")

    def _allowed(self, body: dict[str, Any]) -> None:
        names = self.state.options.served_names
        if body.get("model") is not None and body["model"] not in names:
            raise Problem(404, f"The model `{body['model']}` does not exist.", "NotFoundError", "model")
        if self.state.options.speculation is not None:
            for name in ("min_p", "logit_bias"):
                if body.get(name):
                    raise Problem(400, f"{name} {UNSUPPORTED}")

    def _max_tokens(self, body: dict[str, Any], chat: bool, prompt_tokens: int) -> int:
        room = self.state.options.max_model_len - prompt_tokens
        wanted = _number(body, "max_completion_tokens", _number(body, "max_tokens", room if chat else 16))
        if wanted < 1:
            raise Problem(400, f"max_tokens must be at least 1, got {wanted}.", param="max_tokens")
        if wanted > room:
            raise Problem(
                400,
                f"This model's maximum context length is {self.state.options.max_model_len} tokens. However, you "
                f"requested {int(wanted)} output tokens and your prompt contains {prompt_tokens} input tokens.",
                param="input_tokens",
            )
        return int(wanted)

    def _seeded(self, purpose: str, asked: Asked) -> Random:
        """Greedy answers depend on target and prompt alone, so pods of one target agree; sampled ones differ, and those
        of a server that garbles."""
        sampled = self.state.random.random() if asked.temperature > 0 else 0
        garbled = " garbled" if self.state.dials.garbled and purpose == "reply" else ""
        return Random(f"{purpose} {self.state.options.model} {asked.wish.prompt} {sampled}{garbled}")

    def _job(self, asked: Asked, reply: text.Reply) -> Job:
        speculation = self.state.options.speculation
        method = speculation.method if speculation else None
        workload = truth.workload_of(asked.wish.prompt)
        return Job(
            prompt_tokens=text.count_tokens(asked.wish.prompt),
            output_tokens=len(reply.tokens),
            finish_reason=reply.finish_reason,
            max_tokens=asked.wish.max_tokens,
            difficulty=truth.difficulty(self._seeded("difficulty", asked), workload, method, asked.temperature),
        )


class Answer:
    """Words one answer, whole or as a stream."""

    def __init__(self, asked: Asked, reply: text.Reply, live: Live) -> None:
        self.asked, self.reply, self.live = asked, reply, live
        self.id = f"{'chatcmpl' if asked.chat else 'cmpl'}-{uuid.uuid4().hex}"
        self.created = int(time.time())

    async def whole(self) -> web.Response:
        """The JSON answer, once everything is there. Problem: the server ended it."""
        await self.live.changed.wait()
        if self.live.ended == "cut":
            raise Problem(500, DEAD, "InternalServerError")
        written = "".join(self.reply.tokens[: self.live.tokens])
        kind = "chat.completion" if self.asked.chat else "text_completion"
        choice: dict[str, Any] = {"index": 0, **self._end(), "logprobs": None}
        if self.asked.tool:
            function = {"name": self.asked.tool, "arguments": written}
            call = {"id": f"chatcmpl-tool-{self.id[-16:]}", "type": "function", "function": function}
            choice["message"] = {"role": "assistant", "content": None, "tool_calls": [call]}
            choice["finish_reason"] = "tool_calls" if choice["finish_reason"] == "stop" else choice["finish_reason"]
        elif self.asked.chat:
            choice["message"] = {"role": "assistant", "content": written, "tool_calls": []}
        else:
            choice["text"] = written
        return web.json_response({**self._head(kind), "choices": [choice], "usage": self._usage(), "metrics": None})

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events, one for what each look at the engine brought."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        try:
            await self._events(response)
        except ConnectionError:
            self.live.end("left")
        return response

    async def _events(self, response: web.StreamResponse) -> None:
        sent = 0
        if self.asked.chat:
            await response.write(self._chunk({"role": "assistant", "content": ""}, {}))
        while self.live.ended is None or (self.live.ended == "finished" and sent < self.live.tokens):
            await self.live.changed.wait()
            self.live.changed.clear()
            if self.live.tokens > sent and self.live.ended in {None, "finished"}:
                news = "".join(self.reply.tokens[sent : self.live.tokens])
                sent = self.live.tokens
                await response.write(self._chunk(news, self._end() if self.live.ended else {}))
        if self.live.ended == "cut":
            await response.write(_event(Problem(500, DEAD, "InternalServerError").body))
        elif self.live.ended == "aborted":
            await response.write(self._chunk("", self._end()))
        if self.asked.usage and self.live.ended != "cut":
            await response.write(_event({**self._head(self._kind()), "choices": [], "usage": self._usage()}))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()

    def _kind(self) -> str:
        return "chat.completion.chunk" if self.asked.chat else "text_completion"

    def _chunk(self, news: str | dict[str, str], end: dict[str, Any]) -> bytes:
        content: dict[str, Any] = {"text": news}
        if self.asked.chat:
            content = {"delta": news if isinstance(news, dict) else {"content": news}}
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": None, "stop_reason": None, **end}
        return _event(
            {**self._head(self._kind()), "choices": [choice], **({"usage": None} if self.asked.usage else {})}
        )

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.asked.model}

    def _end(self) -> dict[str, Any]:
        finished = self.live.ended == "finished"
        reason = self.reply.finish_reason if finished else "abort"
        return {"finish_reason": reason, "stop_reason": self.reply.stop_reason if finished else None}

    def _usage(self) -> dict[str, Any]:
        prompt = text.count_tokens(self.asked.wish.prompt)
        done = self.live.tokens
        return {"prompt_tokens": prompt, "completion_tokens": done, "total_tokens": prompt + done}


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"
