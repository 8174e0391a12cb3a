"""How vLLM is started and on which accelerators. Pure."""

from typing import Annotated

from pydantic import ConfigDict, Field

from specfleet.api.base import Bool, FreeMap, Int, Part, SecretKey, atomic_list, map_list, rule, rules, set_list

DEFAULT_IMAGE = "vllm/vllm-openai-rocm:v0.32.0"
FORBIDDEN_ENV = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
ENV_MESSAGE = (
    f"{', '.join(FORBIDDEN_ENV)} fight the device plugin; remove the variable and set accelerator.count instead"
)


class EnvVar(Part):
    """An environment variable of the vLLM container, as in a pod."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!(has(self.value) && self.value != '' && has(self.valueFrom))",
                "cannot stand beside value; remove one of the two",
                "valueFrom",
            ),
            rule(
                "!(self.name in [" + ", ".join(f"'{name}'" for name in FORBIDDEN_ENV) + "])",
                ENV_MESSAGE,
                "name",
            ),
        )
    )

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")]
    """Name of the variable."""
    value: Annotated[str, Field(max_length=4096)] = ""
    """Its value."""
    value_from: FreeMap | None = None
    """Source of the value, as in a pod: secretKeyRef, configMapKeyRef, fieldRef or resourceFieldRef."""


class Engine(Part):
    """The vLLM server in each pod."""

    image: Annotated[str, Field(max_length=512, pattern=r"^[a-zA-Z0-9][-a-zA-Z0-9._/:]*(@sha256:[0-9a-f]{64})?$")] = (
        DEFAULT_IMAGE
    )
    """Container image with vLLM for ROCm; pin a version or a digest. Default: vllm/vllm-openai-rocm:v0.32.0."""
    tensor_parallel_size: Annotated[Int, Field(ge=1, le=64)] | None = None
    """GPUs over which each layer is split, at most accelerator.count. Default: accelerator.count."""
    attention_backend: Annotated[str, Field(max_length=64, pattern=r"^[A-Z][A-Z0-9_]*$")] | None = None
    """vLLM's name of the attention backend, for example ROCM_AITER_FA or TRITON_ATTN. Default: vLLM's choice."""
    max_num_seqs: Annotated[Int, Field(ge=1, le=65536)] | None = None
    """Most requests that a pod runs at once. The operator uses it to tell how much load the remaining pods can carry.
    Default: vLLM's."""
    api_key_secret: SecretKey | None = None
    """Secret with the API key that clients must send. The operator needs read access to Secrets to probe such a server;
    without it, promotion waits (ProbeUnknown)."""
    args: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...],
        Field(max_length=64, json_schema_extra=atomic_list()),
    ] = ()
    """Further arguments of `vllm serve`, for example --max-model-len=32768. Arguments that contradict what the operator
    sets, or that break it, are refused with the field to use instead."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=64, json_schema_extra=map_list("name"))] = ()
    """Further environment variables of the vLLM container."""


class Accelerator(Part):
    """The GPUs of one replica."""

    resource: Annotated[str, Field(max_length=63, pattern=r"^amd\.com/[a-z0-9]([-a-z0-9_.]*[a-z0-9])?$")] = (
        "amd.com/gpu"
    )
    """Resource name of AMD's device plugin: amd.com/gpu, or a partition such as amd.com/cpx_nps4.
    Default: amd.com/gpu."""
    count: Annotated[Int, Field(ge=1, le=64)] = 1
    """Devices per replica. Default: 1."""
    products: Annotated[
        tuple[Annotated[str, Field(max_length=63, pattern=r"^[A-Za-z0-9][-A-Za-z0-9_.]*$")], ...],
        Field(max_length=16, json_schema_extra=set_list()),
    ] = ()
    """GPU models that the pods may run on, for example MI300X, matched by AMD's node labels. Default: any."""


class RequestLog(Part):
    """One JSON line per request in the pod's log: tokens, latencies, acceptance, and which prompt it came from."""

    enabled: Bool = False
    """Whether requests are logged. Prompts and answers never are. Default: false."""
    prompt_version_header: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][-A-Za-z0-9]*$")] = (
        "x-prompt-version"
    )
    """Request header that carries the version of the client's prompt. Default: x-prompt-version."""
