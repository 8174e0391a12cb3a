"""A node without containers: the pods bound to it become simulated vLLM servers on loopback addresses, and back."""

import http.client
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from harness.controlplane import ControlPlane
from harness.errors import HarnessError
from harness.process import Daemon
from kube_http import MERGE, KubeHttp, Object
from simserver import VLLM
from specfleet.api import names
from specfleet.rollout.world import rfc3339

LOOK_SECONDS = 0.25  # between two looks of kubelet and proxy
HEARTBEAT_SECONDS = 10.0
PAGE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a Service sends requests."""

    pod: str
    ip: str


@dataclass(slots=True)
class _Life:
    """The server behind one pod."""

    pod: str
    ip: str
    server: Daemon
    ready: bool = False
    ending: bool = False

    def ended(self) -> bool:
        try:
            self.server.check()
        except HarnessError:
            return True
        return False


@dataclass(slots=True)
class _Seen:
    """What the thread shows to others: replaced whole, or only ever added to."""

    endpoints: Mapping[tuple[str, str], tuple[Endpoint, ...]] = field(default_factory=dict)
    ips: dict[str, str] = field(default_factory=dict)
    last_pages: dict[str, str] = field(default_factory=dict)
    error: BaseException | None = None


class PuppetNode:
    """Plays scheduler, kubelet and kube-proxy for the pods of every SDD, in one thread; all ends with the context.

    A container's command line is run as it is, but for the address; there is no image, volume, or probe but /health.
    """

    def __init__(self, plane: ControlPlane, folder: Path, name: str = "puppet") -> None:
        self.name = name
        self._plane, self._folder = plane, folder
        # An own block of the loopback network, so that two runs on one machine do not meet at port 8000.
        self._network = f"127.{random.SystemRandom().randint(1, 254)}.{random.SystemRandom().randint(1, 254)}"
        self._lives: dict[str, _Life] = {}
        self._started = 0
        self._seen = _Seen()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="puppet node", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raise if the node has failed."""
        if self._seen.error:
            raise RuntimeError("the puppet node has failed") from self._seen.error

    def endpoints(self, namespace: str, service: str) -> tuple[Endpoint, ...]:
        """The ready pods that a Service selects, as a proxy knows them: a moment late."""
        return self._seen.endpoints.get((namespace, service), ())

    def known(self, prefix: str) -> set[str]:
        """Every pod that has run here whose name begins so."""
        return {pod for pod in tuple(self._seen.ips) if pod.startswith(prefix)}

    def page(self, pod: str) -> str:
        """The pod's metrics page; of one that has gone, the last."""
        last = self._seen.last_pages.get(pod)
        return last if last is not None else _page(self._seen.ips[pod])

    def turn(self, pod: str, **dials: Any) -> None:
        """Change dials of a pod's server."""
        connection = http.client.HTTPConnection(self._seen.ips[pod], names.PORT, timeout=5)
        connection.request("PUT", "/sim", json.dumps(dials), {"Content-Type": "application/json"})
        assert connection.getresponse().status == 200
        connection.close()

    # The thread.

    def _run(self) -> None:
        try:
            with KubeHttp(self._plane) as kube:
                self._register(kube)
                beat = time.monotonic()
                while not self._stop.wait(LOOK_SECONDS):
                    self._look(kube)
                    if time.monotonic() - beat > HEARTBEAT_SECONDS:
                        beat = time.monotonic()
                        self._heartbeat(kube)
                kube.call("DELETE", f"/api/v1/nodes/{self.name}")
        except BaseException as error:
            self._seen.error = error
        finally:
            for life in self._lives.values():
                life.server.stop()

    def _register(self, kube: KubeHttp) -> None:
        kube.call("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}})
        self._heartbeat(kube)

    def _heartbeat(self, kube: KubeHttp) -> None:
        """Without it the node's controllers would take the pods away."""
        now = rfc3339(time.time())
        ready = {"type": "Ready", "status": "True", "reason": "Puppet", "lastHeartbeatTime": now}
        status = {"conditions": [{**ready, "message": "", "lastTransitionTime": now}]}
        kube.call("PATCH", f"/api/v1/nodes/{self.name}/status", {"status": status}, MERGE)

    def _look(self, kube: KubeHttp) -> None:
        pods = kube.items(f"/api/v1/pods?labelSelector={names.DEPLOYMENT}")
        services = kube.items(f"/api/v1/services?labelSelector={names.DEPLOYMENT}")
        self._seen.endpoints = {
            (service["metadata"]["namespace"], service["metadata"]["name"]): tuple(_chosen(service, pods))
            for service in services
        }
        for raw in pods:
            self._tend(kube, raw)
        for uid in self._lives.keys() - {raw["metadata"]["uid"] for raw in pods}:
            self._lives.pop(uid).server.stop()

    def _tend(self, kube: KubeHttp, raw: Object) -> None:
        life = self._lives.get(raw["metadata"]["uid"])
        if "deletionTimestamp" in raw["metadata"]:
            self._end(kube, raw, life)
        elif not raw["spec"].get("nodeName"):
            self._start(kube, raw)
        elif life and not life.ready and _healthy(life.ip):
            life.ready = True
            kube.call("PATCH", f"{_path(raw)}/status", {"status": running(raw, life.ip)}, MERGE)

    def _start(self, kube: KubeHttp, raw: Object) -> None:
        name = raw["metadata"]["name"]
        target = {"apiVersion": "v1", "kind": "Node", "name": self.name}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        if not kube.call("POST", f"{_path(raw)}/binding", binding):
            return  # it has gone, or is going
        self._started += 1
        ip = f"{self._network}.{self._started}"
        container = raw["spec"]["containers"][0]
        arguments = container["command"][1:] + container["args"] + ["--host", ip]  # the last one counts
        given = {item["name"]: item["value"] for item in container["env"] if "value" in item}
        server = Daemon(
            name,
            [sys.executable, VLLM, *arguments],
            self._folder / f"{name}.log",
            {**os.environ, **given, "VLLM_SIM_NAME": name},
        )
        self._seen.ips[name] = ip
        self._lives[raw["metadata"]["uid"]] = _Life(name, ip, server)

    def _end(self, kube: KubeHttp, raw: Object, life: _Life | None) -> None:
        """SIGTERM, and once the server has ended the pod goes."""
        if life and not life.ending:
            life.ending = True
            self._seen.last_pages[life.pod] = _page(life.ip)
            os.kill(life.server.pid, signal.SIGTERM)
        elif life is None or life.ended():
            meta = raw["metadata"]
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
            kube.call("DELETE", _path(raw), options)


def _path(raw: Object) -> str:
    return f"/api/v1/namespaces/{raw['metadata']['namespace']}/pods/{raw['metadata']['name']}"


def running(raw: Object, ip: str) -> Object:
    """The status of a pod that serves."""
    now = rfc3339(time.time())
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    container = raw["spec"]["containers"][0]
    state = {"name": container["name"], "image": container["image"], "imageID": "puppet", "restartCount": 0}
    return {
        "phase": "Running",
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "startTime": now,
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds],
        "containerStatuses": [{**state, "ready": True, "started": True, "state": {"running": {"startedAt": now}}}],
    }


def _chosen(service: Object, pods: list[Object]) -> list[Endpoint]:
    selector = (service["spec"].get("selector") or {}).items()
    here = [raw for raw in pods if raw["metadata"]["namespace"] == service["metadata"]["namespace"]]
    return [
        Endpoint(raw["metadata"]["name"], raw["status"]["podIP"])
        for raw in here
        if selector <= raw["metadata"]["labels"].items() and "deletionTimestamp" not in raw["metadata"] and _ready(raw)
    ]


def _ready(raw: Object) -> bool:
    conditions = raw["status"].get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def _healthy(ip: str) -> bool:
    connection = http.client.HTTPConnection(ip, names.PORT, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _page(ip: str) -> str:
    """What /metrics gives within two seconds: a page may have no end."""
    connection = http.client.HTTPConnection(ip, names.PORT, timeout=PAGE_SECONDS)
    end, found = time.monotonic() + PAGE_SECONDS, b""
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        while time.monotonic() < end and (chunk := answer.read1(1 << 16)):
            found += chunk
    except OSError:
        pass
    finally:
        connection.close()
    return found.decode(errors="replace")
