"""Which of the user's `vllm serve` arguments contradict what the operator sets, or break it. Pure.

vLLM's parser takes any unique prefix of a flag, underscores for dashes, `--no-` forms and dotted keys of JSON
arguments; so an argument is refused when it could reach a refused flag in any of these ways.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from specfleet.api.problem import Problem
from specfleet.api.spec import SpecDecodeDeploymentSpec

_NUMBER = re.compile(r"-\d")


@dataclass(frozen=True, slots=True)
class Argument:
    """One flag of the command line, at `index` of the list; `value` is what follows "=" or None."""

    index: int
    flag: str
    value: str | None

    @property
    def name(self) -> str:
        """The flag as the parser looks it up: dashes, no `--no-`, no dotted key."""
        name = self.flag.split(".", 1)[0]
        if not name.startswith("--"):
            return name
        name = name.replace("_", "-")
        return "--" + name[5:] if name.startswith("--no-") else name


@dataclass(frozen=True, slots=True)
class Refusal:
    """Flags that a user may not pass, what to do instead, and when; `when` None is always."""

    flags: tuple[str, ...]
    todo: str
    when: Callable[[SpecDecodeDeploymentSpec], bool] | None = None

    def applies(self, spec: SpecDecodeDeploymentSpec) -> bool:
        """Whether these flags are refused for `spec`."""
        return self.when is None or self.when(spec)

    def matches(self, name: str) -> bool:
        """Whether the parser could take `name` for one of the flags: itself, the beginning of one, or `-n2` for -n."""
        if name.strip("-") == "":
            return False
        return any(flag.startswith(name) or (len(flag) == 2 and name.startswith(flag)) for flag in self.flags)


_ONE_SERVER = "a pod is one server on one node; remove it and set spec.replicas or accelerator.count"
_PLAIN_HTTP = "the operator and the Service speak plain HTTP to the pod; end TLS at the gateway"

# Flags of `vllm serve` 0.32.
REFUSALS = (
    Refusal(("--help", "-h", "--version", "-v"), "it prints and exits; remove it"),
    Refusal(("--config",), "a file could hold any refused argument; write the arguments into engine.args"),
    Refusal(
        ("--host", "--port", "--uds", "--grpc", "--root-path"), "the Service and the probes need it as it is; remove it"
    ),
    Refusal(
        (
            "--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--ssl-cert-reqs", "--ssl-ciphers",
            "--enable-ssl-refresh",
        ),
        _PLAIN_HTTP,
    ),
    Refusal(("--disable-log-stats",), "it removes the metrics that every decision rests on; remove it"),
    Refusal(("--api-server-count", "-asc"), "several API servers split the metrics page; remove it"),
    Refusal(
        (
            "--data-parallel-size", "--data-parallel-size-local", "--data-parallel-rank", "--data-parallel-start-rank",
            "--data-parallel-address", "--data-parallel-rpc-port", "--data-parallel-backend",
            "--data-parallel-hybrid-lb", "--data-parallel-external-lb", "--data-parallel-multi-port-external-lb",
            "--data-parallel-supervisor-port", "--dp-supervisor-probe-interval-s", "--dp-supervisor-probe-timeout-s",
            "--dp-supervisor-probe-failure-threshold", "-dp", "-dpn", "-dpr", "-dpl", "-dpa", "-dpp", "-dpb", "-dph",
            "-dpe", "--headless", "--nnodes", "-n", "--node-rank", "-r", "--master-addr", "--master-port",
            "--pipeline-parallel-size", "-pp",
        ),
        _ONE_SERVER,
    ),
    Refusal(
        ("--speculative-config", "-sc", "--spec-method", "--spec-model", "--spec-tokens"),
        "the operator sets it; use spec.speculation, its options for keys without a field of their own",
    ),
    Refusal(("--model", "--revision"), "the operator sets it; use spec.model.source"),
    Refusal(("--served-model-name",), "the operator sets it; use spec.model.servedName"),
    Refusal(("--tensor-parallel-size", "-tp"), "the operator sets it; use spec.engine.tensorParallelSize"),
    Refusal(("--api-key",), "it would show in the pod; set spec.engine.apiKeySecret"),
    Refusal(("--shutdown-timeout",), "the operator sets it; use spec.pod.drainSeconds"),
    Refusal(
        ("--attention-backend",),
        "spec.engine.attentionBackend already sets it; remove one of the two",
        lambda spec: spec.engine.attention_backend is not None,
    ),
    Refusal(
        ("--max-num-seqs",),
        "spec.engine.maxNumSeqs already sets it; remove one of the two",
        lambda spec: spec.engine.max_num_seqs is not None,
    ),
    Refusal(
        ("--middleware", "--enable-per-request-metrics"),
        "the request log sets it; remove it or turn spec.requestLog off",
        lambda spec: spec.request_log.enabled,
    ),
    Refusal(
        ("--per-request-spec-decode-metrics",),
        "the request log sets it, and without speculation vLLM refuses to start with it; remove it",
        lambda spec: spec.request_log.enabled or spec.speculation.method == "none",
    ),
    Refusal(
        ("--logits-processors",),
        "vLLM refuses to start with it under speculation; remove it or set speculation.method to none",
        lambda spec: spec.speculation.method != "none",
    ),
)  # fmt: skip


def parse(args: tuple[str, ...]) -> tuple[Argument, ...]:
    """The flags among `args`; their separate values are skipped."""
    flags = ((index, *arg.partition("=")) for index, arg in enumerate(args) if _is_flag(arg))
    return tuple(Argument(index, flag, value if equals else None) for index, flag, equals, value in flags)


def problems(spec: SpecDecodeDeploymentSpec) -> Iterator[Problem]:
    """Every argument of spec.engine.args that cannot be passed on."""
    refusals = [refusal for refusal in REFUSALS if refusal.applies(spec)]
    for argument in parse(spec.engine.args):
        for refusal in refusals:
            if refusal.matches(argument.name):
                yield _problem(spec, argument.index, refusal.todo)
                break
    yield from (_problem(spec, index, "a value without its flag; write --flag=value") for index in _strays(spec))


def _is_flag(arg: str) -> bool:
    return arg.startswith("-") and not _NUMBER.match(arg)


def _strays(spec: SpecDecodeDeploymentSpec) -> Iterator[int]:
    """Values that no flag takes: the first argument, what follows `--flag=value`, and a bare `--`."""
    takes_values = False
    for index, arg in enumerate(spec.engine.args):
        if arg.strip("-") == "" or (not _is_flag(arg) and not takes_values):
            yield index
        takes_values = ("=" not in arg) if _is_flag(arg) else takes_values


def _problem(spec: SpecDecodeDeploymentSpec, index: int, todo: str) -> Problem:
    return Problem(f"spec.engine.args[{index}]", spec.engine.args[index], todo)
