"""What is applied for each peer behind the gateway, with the pods that specfleet renders, and the analysis of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import contenders
from bench.contenders import REPLICAS, STEP_SECONDS, SYSTEM, THRESHOLD, WEIGHTS
from bench.watch import PORT
from harness.crowd import crowded
from harness.nodeconfig import ADDRESS
from specfleet.api.names import PORT as SERVED
from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.resources import pod

DRAIN_SECONDS = 30  # of the fleet that a crowd asks
COLLECTOR = f"http://{ADDRESS}:{PORT}"
DEADLINE = 120  # seconds in which pods must make progress
FAILURES = 2  # measurements that end a peer's canary: one alone may be an accident of a busy machine
PLUGIN = "argoproj-labs/gatewayAPI"
Item = dict[str, Any]


def template(labels: Mapping[str, str]) -> Item:
    """The pods that specfleet makes for such a fleet, with other labels."""
    spec = SpecDecodeDeploymentSpec.model_validate(crowded("peer", {}, REPLICAS)["spec"])
    return {**pod.template("peer", "peer", spec), "metadata": {"labels": dict(labels)}}


def argo(name: str, host: str, parent: Mapping[str, str]) -> list[Item]:
    """Two Services, the route between them, the analysis and the Rollout."""
    stable, canary = f"{name}-stable", f"{name}-canary"
    rollout = contenders.rollout(template({"app": name}))
    routing = {"plugins": {PLUGIN: {"httpRoute": name, "namespace": "default"}}}
    rollout["spec"]["strategy"]["canary"] |= {
        "stableService": stable, "canaryService": canary, "trafficRouting": routing,
    }  # fmt: skip
    analysis = contenders.analysis()
    analysis["spec"]["metrics"][0]["failureLimit"] = FAILURES - 1
    route = _route(name, host, parent, {stable: 100, canary: 0})
    return [_service(stable, name), _service(canary, name), route, analysis, rollout]


def argo_plugin_config(program: Path) -> Item:
    """Where the controller finds the plugin."""
    listed = f"- name: {PLUGIN}\n  location: file://{program}\n"
    metadata = {"name": "argo-rollouts-config", "namespace": SYSTEM}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"trafficRouterPlugins": listed}}


def flagger(name: str, host: str, parent: Mapping[str, str]) -> list[Item]:
    """The Deployment, the metric and the Canary, from which Flagger makes Services, route and a second Deployment."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    spec = {
        "replicas": REPLICAS,
        "progressDeadlineSeconds": DEADLINE,
        "strategy": strategy,
        "selector": {"matchLabels": {"app": name}},
        "template": _without_new_fields(template({"app": name, "fleet": name})),
    }
    return [_object("apps/v1", "Deployment", name, spec), _metric(), _canary(name, host, parent)]


def _without_new_fields(wanted: Item) -> Item:
    """Flagger's copy of a pod template lacks what its types do not know yet: the sleep of a preStop, which is written
    as a command here."""
    (container,) = wanted["spec"]["containers"]
    pause = {"exec": {"command": ["sleep", str(pod.PRESTOP_SECONDS)]}}
    spec = {**wanted["spec"], "containers": [{**container, "lifecycle": {"preStop": pause}}]}
    return {**wanted, "spec": spec}


def _canary(name: str, host: str, parent: Mapping[str, str]) -> Item:
    """In Flagger a step is one interval of the analysis, so a gate makes steps that are two intervals long."""
    metric = {
        "name": "acceptance",
        "templateRef": {"name": "acceptance"},
        "thresholdRange": {"min": THRESHOLD},
        "interval": "10s",
    }
    spec = {
        "provider": "gatewayapi:v1",
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "progressDeadlineSeconds": DEADLINE,
        "service": {
            "port": SERVED,
            "targetPort": SERVED,
            "portName": "http",
            "hosts": [host],
            "timeout": "0s",
            "gatewayRefs": [dict(parent)],
        },
        "analysis": {
            "interval": f"{STEP_SECONDS // 2}s",
            "threshold": FAILURES,
            "stepWeights": [*WEIGHTS, 100],
            "metrics": [metric],
            "webhooks": [{"name": "gate", "type": "confirm-traffic-increase", "url": f"{COLLECTOR}/gate"}],
        },
    }
    return _object("flagger.app/v1beta1", "Canary", name, spec)


def _metric() -> Item:
    """Of the pods of the canary's Deployment."""
    provider = {"type": "prometheus", "address": COLLECTOR}
    spec = {"provider": provider, "query": 'acceptance{app="{{ target }}"}'}
    return _object("flagger.app/v1beta1", "MetricTemplate", "acceptance", spec)


def _service(name: str, app: str) -> Item:
    ports = [{"name": "http", "port": SERVED, "targetPort": SERVED}]
    return _object("v1", "Service", name, {"selector": {"app": app}, "ports": ports})


def _route(name: str, host: str, parent: Mapping[str, str], weights: Mapping[str, int]) -> Item:
    """Without a limit for the time of a request, which cuts streams."""
    references = [{"name": service, "port": SERVED, "weight": weight} for service, weight in weights.items()]
    rule = {"backendRefs": references, "timeouts": {"request": "0s"}}
    spec = {"parentRefs": [dict(parent)], "hostnames": [host], "rules": [rule]}
    return _object("gateway.networking.k8s.io/v1", "HTTPRoute", name, spec)


def _object(version: str, kind: str, name: str, spec: Mapping[str, Any]) -> Item:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}
