"""The three that are measured behind a gateway: specfleet, Argo Rollouts with its plugin, Flagger; with equal pods."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from bench import argo_build, argo_plugin, contenders, flagger_build
from bench import routed_manifests as manifests
from bench.accounts import account, kinds, user
from bench.arena import Arena
from bench.contenders import BLOCK_SECONDS, REPLICAS, SCRAPE_SECONDS, SPEED_PERCENT, STEPS
from bench.routed_manifests import Item
from harness.crowd import crowded
from harness.fleet import Fleet, is_ready
from harness.gateway import Gateway
from specfleet.api.names import SERVING

ISOLATED = ("unshare", "--pid", "--fork", "--kill-child")  # so that what a controller has started ends with it
ENDED = 180.0  # seconds until the last pod of one that is removed is gone


class Routed(Protocol):
    """One that is measured. `name` is its route's too; `user` is how the audit log names its controller."""

    name: str
    title: str
    user: str

    def revise(self, run: str) -> None:
        """A new revision, of pods that differ in nothing but a mark."""

    def stable(self) -> list[Item]:
        """Pods of the stable revision."""


def host(name: str) -> str:
    """By which its clients ask the gateway."""
    return f"{name}.example.com"


def gateway_of(arena: Arena) -> Gateway:
    """The stage's."""
    assert arena.stage.gateway is not None
    return arena.stage.gateway


def serving(found: list[Item]) -> list[Item]:
    """Those that are ready and to stay."""
    staying = [pod for pod in found if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]
    return [pod for pod in staying if pod["metadata"]["labels"].get(SERVING, "true") == "true"]


class Ours:
    """A fleet; it needs proof before 100 %, so blocks are short and margins wide."""

    name, title = "fleet", "specfleet"
    user = contenders.Ours.user

    def __init__(self, arena: Arena) -> None:
        self._arena, self._fleet = arena, Fleet(arena.stage, self.name)

    @staticmethod
    @contextmanager
    def running(arena: Arena) -> Iterator[Ours]:
        """At rest with its first revision."""
        one = Ours(arena)
        traffic = {"gateway": dict(gateway_of(arena).parent), "hostnames": [host(one.name)]}
        analysis = {
            "scrapeSeconds": SCRAPE_SECONDS,
            "blockSeconds": BLOCK_SECONDS,
            "maxSeconds": 600,
            "margins": {"speedPercent": SPEED_PERCENT, "errorPoints": 5},
        }
        wanted = crowded(one.name, traffic, REPLICAS, analysis=analysis, steps=STEPS, maxUnavailable=0)
        arena.stage.apply(wanted)
        arena.wait(one.name, "first rollout", 120, lambda: arena.state(one.name).rest)
        yield one
        one._fleet.remove()

    def revise(self, run: str) -> None:
        self._fleet.edit({"restart": run})

    def stable(self) -> list[Item]:
        return serving(self._fleet.pods(self._arena.state(self.name).stable))


class _Peer:
    """What both have: objects that were applied, of which one holds the pod template, and are removed at the end."""

    name: str
    owner: str  # kind and name of what holds the template

    def __init__(self, arena: Arena, selector: str) -> None:
        self._arena, self._selector = arena, selector

    def revise(self, run: str) -> None:
        patch = {"spec": {"template": {"metadata": {"annotations": {"run": run}}}}}
        self._arena.stage.kubectl("patch", *self.owner.split("/"), "--type=merge", "-p", json.dumps(patch))

    def stable(self) -> list[Item]:
        selector = self._selector.format(stable=self._arena.state(self.name).stable)
        return serving(json.loads(self._arena.stage.kubectl("get", "pods", "-l", selector, "-o", "json"))["items"])

    def begin(self, items: list[Item]) -> None:
        """Apply these, and wait until the first revision is at rest behind the gateway."""
        for item in items:
            self._arena.stage.apply(item)
        self._arena.wait(self.name, "first rollout", 180, lambda: self._arena.state(self.name).rest)
        self._arena.wait(self.name, "eight pods", ENDED, lambda: _pods(self._arena, self.name) == REPLICAS)

    def end(self, items: list[Item]) -> None:
        """Remove them, the last first, with their pods."""
        for item in items[::-1]:
            self._arena.stage.kubectl("delete", item["kind"], item["metadata"]["name"], "--wait=false")
        self._arena.wait(self.name, "end of its pods", ENDED, lambda: not _pods(self._arena, self.name))


def _pods(arena: Arena, name: str) -> int:
    return arena.looks()[-1].pods.get(name, 0)


class Argo(_Peer):
    """Its canary with a traffic router: as many canary pods as the weight asks for, beside all of stable's."""

    name, title = "argo", f"Argo Rollouts {argo_build.VERSION.removeprefix('v')}"
    user, owner = user(contenders.SYSTEM), "rollout/argo"

    @staticmethod
    @contextmanager
    def running(arena: Arena) -> Iterator[Argo]:
        """Its controller, and a Rollout at rest."""
        folder, plugin = argo_build.ensure(), argo_plugin.ensure()
        kinds(arena.stage, contenders.crds(folder), contenders.RESOURCES)
        kubeconfig = account(arena.stage, contenders.SYSTEM)
        arena.stage.apply(manifests.argo_plugin_config(plugin))
        items = manifests.argo(Argo.name, host(Argo.name), gateway_of(arena).parent)
        command = _argo(folder, kubeconfig, arena.stage.cluster.state)
        with arena.daemon("argo", command, _environment(arena, kubeconfig)):
            one = Argo(arena, "rollouts-pod-template-hash={stable}")
            one.begin(items)
            yield one
            one.end(items)


def _argo(folder: Path, kubeconfig: Path, state: Path) -> list[str]:
    """The plugin is copied into the working directory, and ends with the controller that starts it."""
    ports = ["--metricsPort", "8190", "--healthzPort", "8191"]
    program = [str(folder / argo_build.PROGRAM), "--kubeconfig", str(kubeconfig), "-n", "", *ports]
    return [*ISOLATED, "env", f"--chdir={state}", *program]


def _environment(arena: Arena, kubeconfig: Path) -> dict[str, str]:
    """The plugin reads KUBECONFIG: its requests are the controller's."""
    home = str(arena.stage.cluster.state)
    return {"POD_NAMESPACE": contenders.SYSTEM, "HOME": home, "TMPDIR": home, "KUBECONFIG": str(kubeconfig)}


class Flagger(_Peer):
    """Its canary: a second Deployment of as many pods, which is scaled to nothing while there is no canary."""

    name, title = "flagger", f"Flagger {flagger_build.VERSION.removeprefix('v')}"
    user, owner = user("flagger-system"), "deployment/flagger"

    @staticmethod
    @contextmanager
    def running(arena: Arena) -> Iterator[Flagger]:
        """Its controller, and a Canary at rest."""
        program, crds = flagger_build.program(), flagger_build.crds()
        kinds(arena.stage, [crds / "crd.yaml"], ("canaries", "metrictemplates"))
        kubeconfig = account(arena.stage, "flagger-system")
        flags = ["-mesh-provider", "gatewayapi:v1", "-metrics-server", manifests.COLLECTOR, "-port", "8192"]
        command = [*ISOLATED, str(program), "-kubeconfig", str(kubeconfig), "-log-level", "info", *flags]
        items = manifests.flagger(Flagger.name, host(Flagger.name), gateway_of(arena).parent)
        with arena.daemon("flagger", command, {"HOME": str(arena.stage.cluster.state)}):
            one = Flagger(arena, f"app={Flagger.name}-primary")
            one.begin(items)
            yield one
            one.end(items)


Running = Callable[[Arena], AbstractContextManager[Routed]]
CONTENDERS: dict[str, Running] = {"specfleet": Ours.running, "argo": Argo.running, "flagger": Flagger.running}


def prepare(names: Collection[str]) -> None:
    """Have the programs of these, before a cluster waits for them."""
    if "argo" in names:
        argo_plugin.ensure()
        argo_build.ensure()
    if "flagger" in names:
        flagger_build.program()
        flagger_build.crds()
