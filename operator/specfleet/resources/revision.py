"""What a revision freezes: the rendered pod template, and what later passes need to know without the spec."""

from collections.abc import Mapping
from typing import Any

from specfleet.api import names
from specfleet.api.v1alpha1 import Part, SpecDecodeDeploymentSpec
from specfleet.resources import pod
from specfleet.resources.owned import metadata

SCHEMA = 1


def render(name: str, revision: str, spec: SpecDecodeDeploymentSpec) -> dict[str, Any]:
    """The payload of `revision` of the SpecDecodeDeployment `name`, as plain JSON; absent where the spec is silent.

    schema: of this payload. template: the PodTemplateSpec. startupSeconds, drainSeconds: budgets. model: what requests
    put into "model". target, draft: weight sources as the user wrote them. method, numSpeculativeTokens (0 for none,
    absent where vLLM chooses), schedule (entries as in the spec), maxNumSeqs, args: what the arms of a rollout are
    compared by. resource, count: GPUs of one replica. apiKeySecret: where probes find their key.
    """
    speculation, engine = spec.speculation, spec.engine
    payload: dict[str, Any] = {
        "schema": SCHEMA,
        "template": pod.template(name, revision, spec),
        "startupSeconds": spec.pod.startup_seconds,
        "drainSeconds": spec.pod.drain_seconds,
        "model": spec.model.name(name),
        "target": _plain(spec.model.source),
        "draft": _plain(speculation.draft.source) if speculation.draft else None,
        "method": speculation.method,
        "numSpeculativeTokens": speculation.maximum,
        "schedule": [_plain(entry) for entry in speculation.schedule],
        "image": engine.image,
        "maxNumSeqs": engine.max_num_seqs,
        "args": list(engine.args),
        "apiKeySecret": _plain(engine.api_key_secret) if engine.api_key_secret else None,
        "resource": spec.accelerator.resource,
        "count": spec.accelerator.count,
    }
    return {key: value for key, value in payload.items() if value is not None}


def controller_revision(
    sdd: Mapping[str, Any],
    revision_name: str,
    number: int,
    identity: str,
    payload: Mapping[str, Any],
    annotations: Mapping[str, str],
) -> dict[str, Any]:
    """ControllerRevision `revision_name`: the `number`-th revision, whose data the API server never lets change.

    identity: full hash of what the user wrote. annotations: what must outlive a lost status (promoted, aborted, ...).
    """
    meta = metadata(sdd, revision_name, names.revision_labels(sdd["metadata"]["name"], revision_name))
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {**meta, "annotations": {**annotations, names.IDENTITY: identity}},
        "revision": number,
        "data": dict(payload),
    }


def _plain(part: Part) -> dict[str, Any]:
    return part.model_dump(mode="json", by_alias=True, exclude_none=True)
