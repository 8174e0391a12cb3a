"""The environment of the vLLM container: AMD's defaults, the secrets, and over them whatever the user sets."""

from typing import Any

from specfleet.api.v1alpha1 import EnvVar, SecretKey, SpecDecodeDeploymentSpec
from specfleet.resources import rocm
from specfleet.resources.security import is_root


def environment(spec: SpecDecodeDeploymentSpec) -> list[dict[str, Any]]:
    """The container's `env`: one entry a name; the user's entry replaces ours of the same name."""
    entries = [*_defaults(spec), *_secrets(spec), *map(_entry, spec.engine.env)]
    return list({entry["name"]: entry for entry in entries}.values())


def _defaults(spec: SpecDecodeDeploymentSpec) -> list[dict[str, Any]]:
    values = rocm.environment(
        spec.pod.startup_seconds,
        aiter=rocm.wants_aiter(spec.engine.attention_backend, spec.speculation.options.get("attention_backend")),
        root=is_root(spec.pod),
    )
    if _all_mounted(spec):
        values["HF_HUB_OFFLINE"] = "1"
    return [{"name": name, "value": value} for name, value in values.items()]


def _all_mounted(spec: SpecDecodeDeploymentSpec) -> bool:
    draft = spec.speculation.draft
    sources = [spec.model.source, *([draft.source] if draft else [])]
    return not any(source.hugging_face for source in sources)


def _secrets(spec: SpecDecodeDeploymentSpec) -> list[dict[str, Any]]:
    keys = {"HF_TOKEN": spec.model.token_secret, "VLLM_API_KEY": spec.engine.api_key_secret}
    return [{"name": name, "valueFrom": {"secretKeyRef": _reference(key)}} for name, key in keys.items() if key]


def _entry(variable: EnvVar) -> dict[str, Any]:
    written = {"name": variable.name, "value": variable.value, "valueFrom": variable.value_from}
    return {field: value for field, value in written.items() if value}  # an empty value is not stored


def _reference(key: SecretKey) -> dict[str, str]:
    return {"name": key.name, "key": key.key}
