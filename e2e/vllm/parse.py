#!/usr/bin/env python3
"""What vLLM's own code makes of command lines, without weights: parse.py TARGET < [[what follows `vllm serve`], ...]

TARGET is a folder with the config of a small model, which stands in for targets that are not on this machine. Prints a
list of {"set": {argument: value other than its default}, "refused": by the parser, "checks": what the checks of `vllm
serve` said, "speculation": {...} if the speculative config came to be, "stopped": where it did not}.
"""

import json
import sys
from argparse import Namespace
from typing import Any

from vllm.config import ModelConfig, ParallelConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser

SHOWN = ("method", "model", "num_speculative_tokens", "attention_backend", "moe_backend")


def parse(parser: FlexibleArgumentParser, argv: list[str], target: str) -> dict[str, Any]:
    """One command line through the parser, the checks of `vllm serve`, and the speculative config."""
    try:
        namespace = parser.parse_args(argv)
    except (SystemExit, ValueError, TypeError) as error:
        return {"refused": repr(error)}
    defaults = vars(parser.parse_args([]))
    chosen = {name: repr(value) for name, value in vars(namespace).items() if value != defaults.get(name)}
    return {"set": chosen, "checks": checks(namespace), **speculation(namespace, target)}


def checks(namespace: Namespace) -> str:
    """What `vllm serve` finds wrong with parsed arguments, or nothing."""
    try:
        validate_parsed_serve_args(namespace)
    except Exception as error:  # whatever vLLM raises is the answer
        return str(error)
    return ""


def speculation(namespace: Namespace, target: str) -> dict[str, Any]:
    """The speculative config as vLLM's engine sees it, or why vLLM stopped on the way to it."""
    namespace.model = target
    try:
        arguments = AsyncEngineArgs.from_cli_args(namespace)
        config = arguments.create_speculative_config(ModelConfig(model=target), ParallelConfig())
    except Exception as error:  # whatever vLLM raises is the answer
        return {"stopped": f"{type(error).__name__}: {error}"}
    return {"speculation": config and {name: str(getattr(config, name)) for name in SHOWN}}


def main(target: str) -> None:
    parser = make_arg_parser(FlexibleArgumentParser())
    json.dump([parse(parser, argv, target) for argv in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
