"""The pod template of a revision: one vLLM container that a `baseline` namespace admits."""

import math
from typing import Any

from specfleet.api import names
from specfleet.api.v1alpha1 import Part, SpecDecodeDeploymentSpec
from specfleet.resources import environment, rocm, security, vllm, volumes

PRESTOP_SECONDS = 5  # endpoints forget the pod meanwhile; vLLM answers 500 from SIGTERM on, with /health at 200
TEARDOWN_SECONDS = 60  # from the last answer to the exit: engine, workers and their GPU memory
QUICK_START_SECONDS = 120  # a start-up budget up to here is a small model's or a test's: look more often


def template(deployment: str, revision: str, spec: SpecDecodeDeploymentSpec) -> dict[str, Any]:
    """The whole PodTemplateSpec of `revision`."""
    return {"metadata": _metadata(deployment, revision, spec), "spec": _pod(deployment, revision, spec)}


def grace_seconds(drain_seconds: int) -> int:
    """How long Kubernetes waits before SIGKILL: every stage of vLLM's own way down, one after the other."""
    return PRESTOP_SECONDS + drain_seconds + TEARDOWN_SECONDS


def _metadata(deployment: str, revision: str, spec: SpecDecodeDeploymentSpec) -> dict[str, Any]:
    ours = {**names.revision_labels(deployment, revision), names.SERVING: "true"}
    meta: dict[str, Any] = {"labels": {**spec.pod.labels, **ours}}
    if spec.pod.annotations:
        meta["annotations"] = dict(spec.pod.annotations)
    return meta


def _pod(deployment: str, revision: str, spec: SpecDecodeDeploymentSpec) -> dict[str, Any]:
    return {
        "containers": [_container(deployment, spec)],
        "volumes": volumes.volumes(spec),
        "securityContext": security.pod_context(spec.pod),
        "terminationGracePeriodSeconds": grace_seconds(spec.pod.drain_seconds),
        # A Service named vllm would inject VLLM_PORT=tcp://..., which vLLM reads as its own (vllm#34199).
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        **_scheduling({names.DEPLOYMENT: deployment, names.REVISION: revision}, spec),
    }


def _container(deployment: str, spec: SpecDecodeDeploymentSpec) -> dict[str, Any]:
    return {
        "name": names.CONTAINER,
        "image": spec.engine.image,
        "imagePullPolicy": "IfNotPresent",
        "command": vllm.command(spec),
        "args": vllm.arguments(deployment, spec),
        "env": environment.environment(spec),
        "ports": [{"name": names.PORT_NAME, "containerPort": names.PORT, "protocol": "TCP"}],
        "resources": _resources(spec),
        "volumeMounts": volumes.mounts(spec),
        "securityContext": security.container_context(),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRESTOP_SECONDS}}},
        **_probes(spec.pod.startup_seconds),
    }


def _resources(spec: SpecDecodeDeploymentSpec) -> dict[str, Any]:
    gpus = {spec.accelerator.resource: str(spec.accelerator.count)}
    users = spec.pod.resources
    return {
        "requests": {**{name: str(amount) for name, amount in users.requests.items()}, **gpus},
        "limits": {**{name: str(amount) for name, amount in users.limits.items()}, **gpus},
    }


def _probes(startup_seconds: int) -> dict[str, Any]:
    """The port opens when the engine is ready, so start-up needs a budget and the other two need not wait for it.

    Liveness gives a busy engine a minute: one that is stuck while /health is fine is found by its counters. A container
    that start-up or liveness gives up on has nothing to drain, so it is not given the drain's time to die.
    """
    quick = startup_seconds <= QUICK_START_SECONDS
    period = 2 if quick else 10
    grace = {"terminationGracePeriodSeconds": grace_seconds(0)}
    return {
        "startupProbe": {**_health(period, math.ceil(startup_seconds / period), 5), **grace},
        "readinessProbe": _health(1 if quick else 5, 3, 5),
        "livenessProbe": {**_health(10, 6, 10), **grace},
    }


def _health(period: int, failures: int, timeout: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": "/health", "port": names.PORT_NAME},
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": timeout,
    }


def _scheduling(labels: dict[str, str], spec: SpecDecodeDeploymentSpec) -> dict[str, Any]:
    """Where the user wants the pods, as written, and on which GPUs.

    No spread is added: the scheduler already spreads a Service's pods softly, and a harder rule would split the GPUs
    of a node that a larger replica needs whole.
    """
    pod = spec.pod
    spreads = pod.topology_spread_constraints
    wanted = {
        "nodeSelector": dict(pod.node_selector),
        "affinity": rocm.placed(pod.affinity or {}, spec.accelerator.products),
        "tolerations": [_plain(toleration) for toleration in pod.tolerations],
        "topologySpreadConstraints": [{"labelSelector": {"matchLabels": labels}, **rule} for rule in spreads],
        "priorityClassName": pod.priority_class_name,
        "schedulerName": pod.scheduler_name,
        "runtimeClassName": pod.runtime_class_name,
        "serviceAccountName": pod.service_account_name,
        "imagePullSecrets": [_plain(secret) for secret in pod.image_pull_secrets],
    }
    return {field: value for field, value in wanted.items() if value}


def _plain(part: Part) -> dict[str, Any]:
    return part.model_dump(by_alias=True, exclude_none=True)
