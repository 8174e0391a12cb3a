"""Which arguments of `vllm serve` a user may pass."""

from typing import Any

import pytest

from specfleet.api.engine_args import Argument, parse, problems
from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec


def spec(args: list[str], **parts: Any) -> SpecDecodeDeploymentSpec:
    engine = {"args": args, **parts.pop("engine", {})}
    speculation = parts.pop("speculation", {"method": "ngram", "numSpeculativeTokens": 3})
    model = {"source": {"huggingFace": {"repo": "Qwen/Qwen3-8B"}}}
    return SpecDecodeDeploymentSpec.model_validate(
        {"model": model, "speculation": speculation, "engine": engine, **parts}
    )


def refused(args: list[str], **parts: Any) -> list[str]:
    return [problem.field for problem in problems(spec(args, **parts))]


@pytest.mark.parametrize(
    "arg",
    [
        "--config", "--config=/a.yaml", "--confi", "--host", "--host=::", "--ho", "--port=1", "--por", "--uds=/a",
        "--ssl-keyfile=a", "--ssl_keyfile=a", "--ssl", "--ssl-c", "--enable-ssl-refresh", "--disable-log-stats",
        "--disable_log_stats", "--disable-log-st", "--no-disable-log-stats", "--data-parallel-size=2", "--data-par",
        "--data_parallel_size_local=1", "-dp", "-dp=2", "-dpl=1", "-dpn", "-d", "--headless", "--nnodes=2", "-n2", "-n",
        "-r=1", "--api-server-count=2", "-asc=2", "--speculative-config={}", "--speculative-conf={}",
        "--speculative_config.method=ngram", "--speculative-config.model.x=1", "--speculative-conf.method=a", "-sc={}",
        "-sc.method=ngram", "-s", "--spec-method=ngram", "--spec", "--spec_tokens=3", "--model=a", "--mod=a",
        "--revision=a", "--served-model-name=a", "--served_model_name=a", "--served", "--tensor-parallel-size=2",
        "-tp=2", "-tp", "-t", "--api-key=a", "--api_key=a", "--api", "--shutdown-timeout=1", "--root-path=/a", "--help",
        "-h", "--version", "-v", "--pipeline-parallel-size=2", "-pp=2", "--logits-processors=a", "--grpc",
    ],
)  # fmt: skip
def test_what_the_operator_sets_or_what_breaks_it_is_refused_in_every_spelling(arg: str) -> None:
    assert refused([arg]) == ["spec.engine.args[0]"]


@pytest.mark.parametrize(
    "args",
    [
        ["--max-model-len=32768"], ["--max-model-len", "32768"], ["--max_model_len", "-1"], ["--config-format=hf"],
        ["--model-impl=vllm"], ["--no-enable-prefix-caching"], ["--enable-prefix-caching"], ["--revision-x"],
        ["--gpu-memory-utilization=0.85"], ["--kv-cache-dtype", "fp8"], ["--compilation-config.level=3"], ["-O3"],
        ["--allowed-origins", '["*"]'], ["--chat-template-content-format=openai"], ["--seed=1"], ["--dtype=bfloat16"],
        ["--port-x=1"], ["--tokenizer-revision=abc"], ["--code-revision", "abc"], ["--disable-log-requests"],
        ["--lora-modules", "a=b", "c=d"], ["--attention-backend=TRITON_ATTN"], ["--max-num-seqs=8"],
        ["--middleware=a.B"], ["--enable-per-request-metrics"], ["--per-request-spec-decode-metrics=summary"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_other_arguments_pass(args: list[str]) -> None:
    assert refused(args) == []


def test_a_typed_field_excludes_its_argument() -> None:
    assert refused(["--attention_backend", "TRITON_ATTN"], engine={"attentionBackend": "ROCM_ATTN"})
    assert refused(["--max-num-seqs=8"], engine={"maxNumSeqs": 8})


def test_the_request_log_excludes_what_it_sets() -> None:
    args = ["--middleware=a.B", "--enable-per-request-metrics", "--per-request-spec-decode-metrics=full"]
    assert len(refused(args, requestLog={"enabled": True})) == 3


def test_speculation_decides_what_vllm_would_refuse_to_start_with() -> None:
    off = {"method": "none"}
    assert refused(["--per-request-spec-decode-metrics=summary"], speculation=off) == ["spec.engine.args[0]"]
    assert refused(["--logits-processors=a"], speculation=off) == []


def test_values_without_a_flag_are_refused() -> None:
    assert refused(["Qwen/Qwen3-8B"]) == ["spec.engine.args[0]"]
    assert refused(["--seed=1", "2"]) == ["spec.engine.args[1]"]
    assert refused(["--", "--host"]) == ["spec.engine.args[1]", "spec.engine.args[0]"]


def test_each_refusal_says_what_to_use_instead() -> None:
    (problem,) = problems(spec(["--max-model-len=1", "--tensor-parallel-size=2"]))
    line = "the operator sets it; use spec.engine.tensorParallelSize"
    assert str(problem) == f'spec.engine.args[1]: "--tensor-parallel-size=2": {line}'


def test_flags_are_told_from_values() -> None:
    arguments = parse(("--a_b=c=d", "-1", "-tp", "4", "--no-x_y", "--j.k_l", "v"))
    assert arguments == (
        Argument(0, "--a_b", "c=d"),
        Argument(2, "-tp", None),
        Argument(4, "--no-x_y", None),
        Argument(5, "--j.k_l", None),
    )
    assert [argument.name for argument in arguments] == ["--a-b", "-tp", "--x-y", "--j"]
