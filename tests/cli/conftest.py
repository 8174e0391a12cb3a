"""Scenes as the cluster would hold them, and golden text that `UPDATE_GOLDEN=1 pytest tests/cli` writes anew."""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from specfleet.api import names
from specfleet.rollout.world import rfc3339

HERE = Path(__file__).parent
NOW = 1_790_000_000.0
STABLE, CANARY, OLD = "llama-6b7f9c42", "llama-9d2zx4kv", "llama-4c8w7bqd"
Raw = dict[str, Any]


def ago(seconds: float) -> str:
    return rfc3339(NOW - seconds)


def sdd(name: str = "llama", status: Raw | None = None, spec: Raw | None = None, **metadata: Any) -> Raw:
    meta = {
        "name": name,
        "namespace": "chat",
        "uid": f"uid-{name}",
        "generation": 7,
        "creationTimestamp": ago(270_000),
        **metadata,
    }
    whole = {"observedGeneration": 7, "model": "llama-70b", "gpu": "MI300X", **status} if status else {}
    return {"kind": names.KIND, "metadata": meta, "spec": spec or {}, "status": whole}


def conditions(ready: str = "True", stalled: str = "False", **more: str) -> list[Raw]:
    said = [
        ("Ready", ready, ""),
        ("Stalled", stalled, ""),
        *((type, "True", message) for type, message in more.items()),
    ]
    return [
        {"type": type, "status": status, "reason": "Known", "message": message, "lastTransitionTime": ago(60)}
        for type, status, message in said
    ]


def arm(revision: str, length: str, replicas: int, ready: int) -> Raw:
    return {
        "revision": revision,
        "method": "eagle3",
        "numSpeculativeTokens": length,
        "replicas": replicas,
        "ready": ready,
    }


def revision(name: str, number: int, length: int, replicas: int | None = None, **annotations: str) -> list[Raw]:
    labels = {names.DEPLOYMENT: "llama", names.REVISION: name}
    notes = {f"{names.GROUP}/{key}": value for key, value in annotations.items()}
    data = {"method": "eagle3" if length else "none", "numSpeculativeTokens": length}
    meta = {"name": name, "labels": labels}
    record = {
        "kind": "ControllerRevision",
        "metadata": {**meta, "annotations": notes},
        "revision": number,
        "data": data,
    }
    workload = {"kind": "Deployment", "metadata": meta, "spec": {"replicas": replicas}}
    return [record] if replicas is None else [record, workload]


def pod(revision: str, suffix: str, node: str = "mi300x-a", **how: Any) -> Raw:
    """`how`: ready, serving, restarts, waiting (reason), unschedulable (message), draining (seconds), gpus, old."""
    ready = how.get("ready", True)
    labels = {names.DEPLOYMENT: "llama", names.REVISION: revision}
    labels |= {names.SERVING: "true"} if how.get("serving", True) else {}
    container: Raw = {"restartCount": how.get("restarts", 0)}
    if "waiting" in how:
        last = {"lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}} if how.get("restarts") else {}
        container |= {"state": {"waiting": {"reason": how["waiting"]}}, **last}
    said = [{"type": "Ready", "status": str(ready)}]
    if "unschedulable" in how:
        said.append({"type": "PodScheduled", "status": "False", "message": how["unschedulable"]})
    return {
        "kind": "Pod",
        "metadata": {
            "name": f"{revision}-7d9f8b6c4-{suffix}",
            "labels": labels,
            "creationTimestamp": ago(how.get("old", 260_000)),
            "annotations": {names.DRAINING_SINCE: ago(how["draining"])} if "draining" in how else {},
        },
        "spec": {
            **({"nodeName": node} if node else {}),
            "containers": [{"resources": {"limits": {"amd.com/gpu": str(how.get("gpus", 4)), "cpu": "8"}}}],
        },
        "status": {"conditions": said, "containerStatuses": [container]},
    }


@pytest.fixture
def text() -> Callable[..., str]:
    """What a renderable looks like without colour, as lines without trailing blanks."""

    def _text(shown: RenderableType, width: int = 120, encoding: str = "utf-8") -> str:
        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        Console(file=out, width=width, highlight=False, markup=False, emoji=False, no_color=True).print(shown)
        out.flush()
        written = out.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
        return "\n".join(line.rstrip() for line in written.splitlines()) + "\n"

    return _text


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    def _golden(name: str, written: str) -> None:
        path = HERE / "golden" / f"{name}.txt"
        if os.environ.get("UPDATE_GOLDEN"):
            path.write_text(written)
        assert written == path.read_text()

    return _golden


def metric(name: str, outcome: str, numbers: tuple[str, str, str] | None, margin: str, unit: str, blocks: int) -> Raw:
    known = dict(zip(("estimate", "lower", "upper"), numbers, strict=True)) if numbers else {}
    missing = {} if numbers else {"message": f"{name}: {blocks} of 8 blocks"}
    if outcome == "Inconclusive":
        missing["timeToDecision"] = "about 35m"
    return {"name": name, "outcome": outcome, **known, **missing, "margin": margin, "unit": unit, "blocks": blocks}


def decision(seconds: float, reason: str, message: str) -> Raw:
    return {"time": ago(seconds), "reason": reason, "message": message, "revision": CANARY}


def _rest() -> tuple[Raw, list[Raw]]:
    status = {
        "conditions": conditions(),
        "reason": "Stable",
        "message": f"{STABLE} serves with 2 pods",
        "stable": arm(STABLE, "3", 2, 2),
        "ready": "2/2",
        "proposalLength": "3",
        "acceptance": "61%",
        "tokensPerStep": "2.8",
        "stepTime": "31 ms",
        "decisions": [decision(180_000, "Promoted", f"{STABLE} is stable: Promote was asked for")],
        "findings": [
            "spec.model.source.huggingFace.revision is not a full commit hash: weights can change under a running"
            " fleet; pin it"
        ],
    }
    pods = [pod(STABLE, "2x5kq"), pod(STABLE, "p7vtn", "mi300x-b", restarts=1)]
    return sdd(status=status), [*revision(STABLE, 3, 3, 2, promoted="2"), *revision(OLD, 2, 5, promoted="1"), *pods]


def _first() -> tuple[Raw, list[Raw]]:
    no_room = "0/3 nodes are available: 1 node(s) had untolerated taint, 2 Insufficient amd.com/gpu."
    pods = [
        pod(STABLE, "2x5kq", ready=False, old=95),
        pod(STABLE, "p7vtn", "", ready=False, unschedulable=no_room, old=95),
    ]
    status = {
        "conditions": conditions("False"),
        "reason": "WaitingForGPUs",
        "message": f"0 of 2 pods of {STABLE} ready; {STABLE}-7d9f8b6c4-p7vtn: {no_room}",
        "ready": "0/2",
        "proposalLength": "3",
    }
    return sdd(status=status), [*revision(STABLE, 1, 3, 2), *pods]


PLAN = [
    {"asked": "5%", "reachable": "25%", "canary": 1, "stable": 3, "accelerators": 16, "lends": 1},
    {"asked": "25%", "canary": 1, "stable": 3, "accelerators": 16, "lends": 1},
    {"asked": "50%", "canary": 2, "stable": 2, "accelerators": 16, "lends": 1},
    {"asked": "100%", "canary": 4, "stable": 0, "accelerators": 16, "lends": 1},
]
GUARDS = [
    {"name": "alive", "state": "passing", "message": "0 restarts"},
    {"name": "correct", "state": "passing", "message": "answers are sane; agreement with stable unknown"},
    {"name": "fits", "state": "passing", "message": "384000 tokens of KV cache a pod, +0 % against stable's 384000"},
    {"name": "accepting", "state": "unknown", "message": "fewer than 200 drafts"},
    {"name": "errors", "state": "passing", "message": "0.0 % of late answered 5xx"},
    {"name": "progress", "state": "passing", "message": "running requests move on"},
]


def _canary() -> tuple[Raw, list[Raw]]:
    status = {
        "conditions": conditions(),
        "reason": "CanaryAnalysing",
        "message": "acceptance +0.3 points [-6.1, +6.7] against a margin of 5, 9 blocks",
        "stable": arm(STABLE, "3", 3, 3),
        "canary": arm(CANARY, "5", 1, 1) | {"guards": GUARDS, "plan": PLAN},
        "ready": "4/4",
        "weight": "25%",
        "step": {"index": 1, "of": 3, "askedWeight": "5%", "reachable": "25%", "since": ago(130)},
        "proposalLength": "3→5",
        "acceptance": "58%",
        "metrics": [
            metric("speed", "NonInferior", ("24.1", "18.0", "30.2"), "15.0", "%", 9),
            metric("acceptance", "Inconclusive", ("0.3", "-6.1", "6.7"), "5.0", "points", 9),
            metric("errors", "InsufficientData", None, "1.0", "points", 3),
        ],
        "selfCheck": {"comparisons": 105, "falseAlarms": 2, "podSpread": "speed 1.2 %, acceptance 0.4 points"},
        "dropped": "12 scrapes of pods that warmed up, 1 tick after a pause",
        "decisions": [
            decision(130, "StepReached", "asked 5%, reachable 25% (1 of 4 pods)"),
            decision(400, "CanaryStarted", f"{CANARY} starts; {STABLE} stays stable"),
        ],
    }
    pods = [pod(STABLE, "2x5kq"), pod(STABLE, "p7vtn", "mi300x-b"), pod(STABLE, "zzq2c", "mi300x-b")]
    canary = [*revision(CANARY, 4, 5, 1), pod(CANARY, "hj8dm", "mi300x-c", old=390)]
    return sdd(status=status), [*revision(STABLE, 3, 3, 3, promoted="2"), *pods, *canary]


def _aborted() -> tuple[Raw, list[Raw]]:
    why = "CanaryRegressed: speed -21.4 % [-28.0, -14.8] against a margin of 5 %, 11 blocks"
    crash = pod(CANARY, "hj8dm", "mi300x-c", ready=False, waiting="CrashLoopBackOff", restarts=3, old=390)
    status = {
        "conditions": conditions(stalled="True"),
        "reason": "CanaryAborted",
        "message": why,
        "stable": arm(STABLE, "3", 1, 1),
        "ready": "1/1",
        "decisions": [decision(45, "CanaryRegressed", why.removeprefix("CanaryRegressed: "))],
    }
    return sdd(status=status), [
        *revision(STABLE, 3, 3, 1, promoted="2"),
        *revision(CANARY, 4, 5, 1, aborted=why),
        *revision(OLD, 2, 7, aborted="CanaryDead: pods died"),
        pod(STABLE, "2x5kq"),
        crash,
    ]


def _draining() -> tuple[Raw, list[Raw]]:
    status = {
        "conditions": conditions(),
        "reason": "Draining",
        "message": f"{OLD}: 1 pods to go",
        "stable": arm(STABLE, "3", 1, 1),
        "ready": "1/1",
    }
    leaving = pod(OLD, "b4n6w", "mi300x-b", serving=False, draining=35)
    return sdd(status=status), [
        *revision(STABLE, 3, 3, 1, promoted="2"),
        *revision(OLD, 2, 0, 1, promoted="1"),
        pod(STABLE, "2x5kq"),
        leaving,
    ]


def _not_implemented() -> tuple[Raw, list[Raw]]:
    resource, owned = _rest()
    missing = "accepted, but without effect in this version: spec.slo, spec.traffic.gateway"
    resource["status"]["conditions"] = conditions(NotImplemented=missing)
    resource["status"]["lastHandledAction"] = {
        "id": "42",
        "type": "Undo",
        "result": "UndoUnavailable: no earlier promoted revision is kept",
    }
    resource["metadata"]["generation"] = 8
    return resource, owned


SCENES = {
    "at-rest": _rest,
    "first-rollout": _first,
    "canary": _canary,
    "aborted": _aborted,
    "draining": _draining,
    "not-implemented": _not_implemented,
}


@pytest.fixture
def scene() -> Callable[[str], tuple[Raw, list[Raw]]]:
    return lambda name: SCENES[name]()


@pytest.fixture
def now() -> float:
    return NOW
