"""Decides what `vllm serve ...` means to the simulated server, and with which words vLLM would refuse it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specfleet.simulation.truth import DRAFTERS

_ALIASES = {"draft": "draft_model", "gemma4_mtp": "mtp", "deepseek_mtp": "mtp", "qwen3_next_mtp": "mtp"}
_NEEDS_MODEL = frozenset({"eagle", "eagle3", "dflash", "draft_model", "medusa"})
_OWN_LENGTH = frozenset({"mtp", "dspark", "suffix"})  # the checkpoint (or the library) brings a default


class Refused(Exception):
    """The command line would stop vLLM at start; the text is what it would print."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """A speculative config that vLLM accepts. schedule rows: (from batch, to batch, tokens)."""

    method: str
    length: int
    draft: str | None = None
    schedule: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Options:
    """The part of the command line that the simulated server acts on; all other flags are accepted."""

    model: str
    served_names: tuple[str, ...]
    host: str
    port: int
    speculation: Speculation | None
    max_num_seqs: int
    max_model_len: int
    shutdown_timeout: float
    api_keys: tuple[str, ...]
    tools: bool = False  # models may call tools by themselves


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vllm serve", add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--model", default=None)
    parser.add_argument("--served-model-name", nargs="+", default=None)
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--speculative-config", "-sc", default=None)
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--max-model-len", type=_length, default=32768)
    parser.add_argument("--shutdown-timeout", type=float, default=0.0)
    parser.add_argument("--api-key", nargs="*", default=[])
    parser.add_argument("--per-request-spec-decode-metrics", default="none")
    parser.add_argument("--enable-auto-tool-choice", action="store_true")
    return parser


def _length(text: str) -> int:
    """A length as vLLM reads it: `32768`, `32k` (thousands), `32K` (1024s); -1 and `auto` leave it to the model."""
    if text in {"-1", "auto"}:
        return 32768
    factors = {"k": 1000, "K": 1024, "m": 10**6, "M": 2**20}
    return int(float(text[:-1]) * factors[text[-1]]) if text[-1] in factors else int(text)


def _dashed(argument: str) -> str:
    """Flags may be written with underscores; values after `=` stay as they are."""
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value


def parse(argv: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Options of `vllm serve`, from what follows `serve`. Refused: what vLLM would not start with."""
    positional = argv[0] if argv and not argv[0].startswith("-") else None
    flags = [_dashed(argument) for argument in (argv[1:] if positional is not None else argv)]
    try:
        given, _ = _parser().parse_known_args(flags)
    except (argparse.ArgumentError, SystemExit) as error:
        raise Refused(f"vllm serve: error: {error}") from error
    model = positional or given.model or "Qwen/Qwen3-0.6B"
    speculation = _speculation(given.speculative_config)
    if given.per_request_spec_decode_metrics != "none" and speculation is None:
        raise Refused(
            _invalid("VllmConfig", "--per-request-spec-decode-metrics requires speculative decoding to be enabled")
        )
    keys = [key for key in (*given.api_key, environment.get("VLLM_API_KEY", "")) if key]
    return Options(
        model=model,
        served_names=tuple(given.served_model_name or [model]),
        host=given.host,
        port=given.port,
        speculation=speculation,
        max_num_seqs=given.max_num_seqs,
        max_model_len=given.max_model_len,
        shutdown_timeout=given.shutdown_timeout,
        api_keys=tuple(keys),
        tools=given.enable_auto_tool_choice,
    )


def _invalid(what: str, message: str) -> str:
    """How pydantic words an error that vLLM raises while it checks a config."""
    return (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for "
        f"{what}\n  Value error, {message} [type=value_error]"
    )


def _speculation(text: str | None) -> Speculation | None:
    if text is None:
        return None
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        config = error
    if not isinstance(config, dict):
        raise Refused(
            f"vllm serve: error: argument --speculative-config/-sc: Value {text} cannot be converted to a dict."
        )
    if "tensor_parallel_size" in config:
        message = "'tensor_parallel_size' is not a valid argument in the speculative_config."
        raise Refused(_invalid("SpeculativeConfig", message))
    method = _method(config)
    if method in _NEEDS_MODEL and not config.get("model"):
        message = "num_speculative_tokens was provided but without speculative model."
        raise Refused(_invalid("SpeculativeConfig", message))
    return Speculation(method, _proposal_length(config, method), config.get("model"), _schedule(config))


def _method(config: dict[str, Any]) -> str:
    """The method as named, or as vLLM tells it from the draft's name."""
    draft = str(config.get("model") or "").lower()
    guesses = [("ngram", "ngram"), ("eagle3", "eagle3"), ("eagle-", "eagle"), ("dflash", "dflash")]
    named = config.get("method") or next((method for part, method in guesses if part in draft), "draft_model")
    method = _ALIASES.get(str(named), str(named))
    if method not in DRAFTERS:
        known = ", ".join(f"'{name}'" for name in DRAFTERS)
        raise Refused(
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\nmethod\n"
            f"  Input should be {known} [type=literal_error, input_value={named!r}, input_type=str]"
        )
    return method


def _proposal_length(config: dict[str, Any], method: str) -> int:
    length = config.get("num_speculative_tokens", 1 if method in _OWN_LENGTH else None)
    if length is None:
        message = "num_speculative_tokens must be provided with speculative model unless the draft model config has it."
        raise Refused(_invalid("SpeculativeConfig", message))
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        message = f"Expected num_speculative_tokens to be greater than zero ({length})."
        raise Refused(_invalid("SpeculativeConfig", message))
    return length


def _schedule(config: dict[str, Any]) -> tuple[tuple[int, int, int], ...]:
    """Rows [from, to, tokens] of a schedule: they start at 1, ascend and do not overlap."""
    rows = config.get("num_speculative_tokens_per_batch_size") or []
    reached = 0
    for row in rows:
        if not (isinstance(row, list) and len(row) == 3 and all(isinstance(value, int) for value in row)):
            raise Refused(_invalid("SpeculativeConfig", "each row of the schedule is [from, to, tokens]"))
        if (reached == 0 and row[0] != 1) or row[0] <= reached or row[1] < row[0] or row[2] < 0:
            raise Refused(_invalid("SpeculativeConfig", f"schedule rows start at 1, ascend and do not overlap: {rows}"))
        reached = row[1]
    return tuple((row[0], row[1], row[2]) for row in rows)
