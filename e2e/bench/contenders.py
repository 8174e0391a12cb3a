"""The two that are measured: our operator with a SpecDecodeDeployment, Argo Rollouts with a Rollout of equal pods."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from bench import argo_build
from bench.accounts import account, kinds, user
from bench.arena import Arena
from bench.watch import PORT
from harness.fleet import Fleet, tokens
from harness.manifest import manifest
from harness.nodeconfig import ADDRESS
from harness.stage import Stage

REPLICAS, LENGTH, LONGER = 8, 3, 5
WEIGHTS, STEP_SECONDS = (5, 25, 50), 20
SCRAPE_SECONDS, BLOCK_SECONDS, SPEED_PERCENT = 5, 5, 15
THRESHOLD = 0.3  # accepted over drafted tokens
STEPS = [{"weight": weight, "minSeconds": STEP_SECONDS} for weight in WEIGHTS]  # of ours
HOLD = {"weight": 25, "minSeconds": 3600}
SYSTEM = "argo-rollouts"  # namespace, service account and role binding
RESOURCES = ("rollouts", "analysistemplates", "analysisruns")
Item = dict[str, Any]


class Contender(Protocol):
    """One that is measured. `user` is how the audit log names it."""

    name: str
    user: str

    def pids(self) -> list[int]:
        """Its controller's processes."""

    def lengthen(self) -> None:
        """The change that is promoted: five speculative tokens instead of three."""

    def next(self, run: int) -> None:
        """The next canary, of the same configuration; the one before it was aborted."""

    def hold(self) -> None:
        """From now on a canary stays at a quarter of the traffic long enough to collapse there."""

    def walk(self) -> None:
        """From now on a canary takes all steps, as in the promotion."""

    def pods(self, revision: str) -> list[Item]:
        """A revision's pods."""


class Ours:
    """A fleet of eight; it needs proof before 100 %, so blocks are short and margins wide."""

    name = "fleet"
    user = "system:serviceaccount:specfleet-system:specfleet"

    def __init__(self, arena: Arena) -> None:
        self._arena, self._fleet = arena, Fleet(arena.stage, self.name)

    @contextmanager
    def running(self) -> Iterator[Ours]:
        """At rest with its first revision."""
        analysis = {
            "scrapeSeconds": SCRAPE_SECONDS,
            "blockSeconds": BLOCK_SECONDS,
            "maxSeconds": 600,
            "margins": {"speedPercent": SPEED_PERCENT, "errorPoints": 5},
        }
        wanted = manifest(self.name, REPLICAS, (), analysis=analysis, maxUnavailable=0)
        wanted["spec"]["rollout"]["steps"] = STEPS
        self._arena.stage.apply(wanted)
        self._arena.wait(self.name, "first rollout", 120, lambda: self._arena.state(self.name).rest)
        yield self
        self._fleet.remove()

    def pids(self) -> list[int]:
        return self._arena.stage.processes(self._arena.stage.operator())

    def lengthen(self) -> None:
        self._fleet.edit(tokens(LONGER))

    def hold(self) -> None:
        self._fleet.edit({"rollout": {"steps": [HOLD]}})

    def walk(self) -> None:
        self._fleet.edit({"rollout": {"steps": STEPS}})

    def next(self, run: int) -> None:
        state = self._arena.state(self.name)
        if state.aborted:
            action = {"type": "Retry", "revision": state.newest, "id": f"run-{run}"}
            self._fleet.edit({"rollout": {"action": action}})
        else:
            self._fleet.edit({"restart": f"run-{run}"})

    def pods(self, revision: str) -> list[Item]:
        return self._fleet.pods(revision)

    def template(self) -> Item:
        """The pod template of its stable revision."""
        state = self._arena.state(self.name)
        found = {item["metadata"]["name"]: item for item in self._arena.stage.items("deployments", self.name)}
        template: Item = found[state.stable]["spec"]["template"]
        return template


class Argo:
    """Argo Rollouts' basic canary, its controller as a process in the cluster's network with an account of its own."""

    name = "argo"
    user = user(SYSTEM)

    def __init__(self, arena: Arena, pid: int, template: Item) -> None:
        self._arena, self._pid, self._template = arena, pid, template

    @staticmethod
    @contextmanager
    def running(arena: Arena, template: Item) -> Iterator[Argo]:
        """Its controller, and a Rollout at rest."""
        folder = argo_build.ensure()
        kubeconfig = _install(arena.stage, folder)
        ports = ["--metricsPort", "8190", "--healthzPort", "8191"]
        command = [str(folder / argo_build.PROGRAM), "--kubeconfig", str(kubeconfig), "-n", "", *ports]
        own = {"POD_NAMESPACE": SYSTEM, "HOME": str(arena.stage.cluster.state)}
        with arena.daemon("argo", command, own) as daemon:
            argo = Argo(arena, daemon.pid, pod_template(template))
            for item in (service(), analysis(), rollout(argo._template)):
                arena.stage.apply(item)
            arena.wait(argo.name, "first rollout", 120, lambda: arena.state(argo.name).rest)
            yield argo
            arena.stage.kubectl("delete", "rollout", argo.name, "--cascade=foreground", "--timeout=90s")

    def pids(self) -> list[int]:
        return [self._pid]

    def lengthen(self) -> None:
        self._template = json.loads(_longer(json.dumps(self._template)))
        self._apply()

    def hold(self) -> None:
        """It passes a quarter on its way, and cannot change its steps without starting anew."""

    def walk(self) -> None:
        """It always does."""

    def next(self, run: int) -> None:
        self._template["metadata"].setdefault("annotations", {})["run"] = str(run)
        self._apply()

    def _apply(self) -> None:
        patch = json.dumps({"spec": {"template": self._template}})
        self._arena.stage.kubectl("patch", "rollout", self.name, "--type=merge", "-p", patch)

    def pods(self, revision: str) -> list[Item]:
        selector = f"rollouts-pod-template-hash={revision}"
        found: list[Item] = json.loads(self._arena.stage.kubectl("get", "pods", "-l", selector, "-o", "json"))["items"]
        return found


def _longer(template: str) -> str:
    """That template with the longer proposals, in vLLM's command line."""
    for quote in ('"', '\\"'):
        template = template.replace(
            f"num_speculative_tokens{quote}:{LENGTH}", f"num_speculative_tokens{quote}:{LONGER}"
        )
    return template


def _install(stage: Stage, folder: Path) -> Path:
    """Custom resources and an account that may do all; the kubeconfig of that account."""
    kinds(stage, crds(folder), RESOURCES)
    return account(stage, SYSTEM)


def crds(folder: Path) -> list[Path]:
    """The manifests of its kinds."""
    return sorted((folder / argo_build.CRDS).glob("*-crd.yaml"))


def pod_template(ours: Mapping[str, Any]) -> Item:
    """The template that our operator renders, with Argo's label in place of ours: the same command line and probes."""
    template: Item = json.loads(json.dumps(ours))
    template["metadata"] = {"labels": {"app": Argo.name}}
    return template


def service() -> Item:
    """What clients of the Rollout ask."""
    ports = [{"name": "http", "port": 8000, "targetPort": 8000}]
    spec = {"selector": {"app": Argo.name}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": Argo.name}, "spec": spec}


def analysis() -> Item:
    """The strictest: every ten seconds, and the first failure aborts."""
    url = f"http://{ADDRESS}:{PORT}/ratio?hash={{{{args.hash}}}}"
    metric = {
        "name": "acceptance",
        "interval": "10s",
        "initialDelay": "10s",
        "failureLimit": 0,
        "successCondition": f"asFloat(result) >= {THRESHOLD}",
        "provider": {"web": {"url": url, "jsonPath": "{$.ratio}", "timeoutSeconds": 5}},
    }
    spec = {"args": [{"name": "hash"}], "metrics": [metric]}
    kind = {"apiVersion": "argoproj.io/v1alpha1", "kind": "AnalysisTemplate"}
    return {**kind, "metadata": {"name": "acceptance"}, "spec": spec}


def rollout(template: Item) -> Item:
    """The basic canary: weight is the share of pods."""
    steps: list[Item] = []
    for weight in (*WEIGHTS, 100):
        steps += [{"setWeight": weight}, {"pause": {"duration": f"{STEP_SECONDS}s"}}]
    canary = {
        "maxSurge": 1,
        "maxUnavailable": 0,
        "steps": steps,
        "analysis": {
            "startingStep": 1,
            "templates": [{"templateName": "acceptance"}],
            "args": [{"name": "hash", "valueFrom": {"podTemplateHashValue": "Latest"}}],
        },
    }
    spec = {
        "replicas": REPLICAS,
        "revisionHistoryLimit": 2,
        "progressDeadlineSeconds": 120,
        "selector": {"matchLabels": {"app": Argo.name}},
        "strategy": {"canary": canary},
        "template": template,
    }
    kind = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"}
    return {**kind, "metadata": {"name": Argo.name}, "spec": spec}
