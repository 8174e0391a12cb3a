"""A cluster with the operator installed from its chart, and what a story needs on it: resources, load, a witness."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from harness import images
from harness.cluster import Cluster
from harness.errors import HarnessError, say
from harness.gateway import Gateway, named
from harness.kind import KindCluster
from harness.load import GRACE, Load
from harness.node import ensure_helm
from harness.process import Daemon
from harness.witness import Log

PROJECT = Path(__file__).parents[2]
CHART = PROJECT / "charts/specfleet"
OPERATOR_NAMESPACE = "specfleet-system"
OPERATOR_PODS = "app.kubernetes.io/name=specfleet-operator"
ENFORCE = "pod-security.kubernetes.io/enforce"
TAG = "dev"
PUT = "import sys, urllib.request as r; r.urlopen(r.Request(sys.argv[1], sys.argv[2].encode(), method='PUT'))"


class Stage:
    """One cluster with the operator, and with a gateway if one is named. Everything that it starts ends with it."""

    gateway: Gateway | None = None

    def __init__(
        self, gpus: int = 8, set: Mapping[str, str] | None = None, audit: bool = False, gateway: str | None = None
    ):
        self._gpus, self._set, self._audit, self._gateway = gpus, dict(set or {}), audit, gateway
        self._stack = ExitStack()
        self._begin = time.monotonic()
        self._loads = itertools.count()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            say("Images of the operator and of the simulated vLLM server ...")
            archives = [images.build("operator", TAG), images.build("vllm-sim")]
            self.gateway = named(self._gateway) if self._gateway else None
            say(f"A Kubernetes cluster with {self._gpus} made-up MI300X ...")
            kind = KindCluster if os.environ.get("CLUSTER") == "kind" else Cluster
            self.cluster = stack.enter_context(kind(gpus=self._gpus, images=archives, audit=self._audit))
            if self.gateway is not None:  # before the operator, which looks for the kinds when it starts
                stack.callback(self.gateway.stop)
                self.gateway.start(self.cluster)
                self.say(f"the gateway '{self.gateway.name}' is programmed")
            self.install()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def install(self, values: Mapping[str, str] | None = None, chart: Path = CHART) -> None:
        """`helm upgrade --install` of a chart, by default this checkout's, and wait until its operator leads."""
        values = {"image.tag": TAG, "image.pullPolicy": "Never", "log.format": "text", **self._set, **(values or {})}
        flags = [f"--set={key}={value}" for key, value in values.items()]
        self.apply(_restricted(OPERATOR_NAMESPACE))
        self.helm("upgrade", "--install", "specfleet", str(chart), *flags)
        self.kubectl("wait", "--for=condition=Established", "crd/specdecodedeployments.specfleet.dev", "--timeout=30s")
        self.kubectl("-n", OPERATOR_NAMESPACE, "rollout", "status", "deploy/specfleet", "--timeout=120s")
        self.wait("operator that leads", 60, self._led)
        self.say("the operator is installed from its Helm chart")

    def say(self, what: str) -> None:
        """A line of the story, with the seconds since its start."""
        print(f"{time.monotonic() - self._begin:6.1f} s  {what}", flush=True)

    def helm(self, *arguments: str) -> str:
        """What helm prints, as administrator of the cluster."""
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig), "HOME": str(self.cluster.state)}
        command = [*self.cluster.exec_prefix, str(ensure_helm() / "helm"), *arguments]
        command += ["--namespace", OPERATOR_NAMESPACE]
        result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if result.returncode:
            raise HarnessError(f"helm {arguments[0]}: {result.stderr.strip()}")
        return result.stdout

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        """What kubectl prints, as administrator of the cluster."""
        return self.cluster.kubectl(*arguments, input=input)

    def plugin(self, *arguments: str) -> str:
        """What `kubectl specfleet` prints, as administrator of the cluster."""
        kubectl = f"{self.cluster.settings.kube}/kubectl"
        environment = {**os.environ, "KUBECTL": kubectl, "KUBECONFIG": str(self.cluster.kubeconfig), "COLUMNS": "120"}
        command = [*self.cluster.exec_prefix, str(Path(sys.executable).with_name("kubectl-specfleet")), *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False).stdout

    def apply(self, manifest: Mapping[str, Any]) -> None:
        """kubectl apply one object."""
        self.kubectl("apply", "-f", "-", input=json.dumps(manifest))

    def items(self, kind: str, name: str) -> list[dict[str, Any]]:
        """The objects of a kind that belong to an SDD."""
        listed = self.kubectl("get", kind, "-l", f"specfleet.dev/deployment={name}", "-o", "json")
        found: list[dict[str, Any]] = json.loads(listed)["items"]
        return found

    def wait(self, what: str, seconds: float, done: Callable[[], bool], tell: Callable[[], str] = lambda: "") -> None:
        """Poll until `done`; `tell` gives a line that is printed whenever it changes."""
        end, told = time.monotonic() + seconds, ""
        while not done():
            if (line := tell()) != told:
                told = line
                self.say(line)
            self.cluster.check()
            if time.monotonic() > end:
                raise HarnessError(f"no {what} after {seconds:.0f} s: {tell()}\n{self.operator_log()}")
            time.sleep(0.5)

    def operator_log(self, lines: int = 40) -> str:
        """The end of the operator's log."""
        return self.kubectl("-n", OPERATOR_NAMESPACE, "logs", "-l", OPERATOR_PODS, f"--tail={lines}")

    def operators(self) -> list[dict[str, Any]]:
        """The operator's pods."""
        found: list[dict[str, Any]] = json.loads(
            self.kubectl("-n", OPERATOR_NAMESPACE, "get", "pods", "-l", OPERATOR_PODS, "-o", "json")
        )["items"]
        return found

    def operator(self, name: str = "") -> dict[str, Any]:
        """The operator's pod: the only one, or that of a name."""
        found = [pod for pod in self.operators() if name in ("", pod["metadata"]["name"])]
        if len(found) != 1:
            raise HarnessError(f"{len(found)} operator pods {name}")
        return found[0]

    def lease(self) -> dict[str, Any]:
        """What the Lease says by which the operators agree on the one that writes."""
        lease = ("lease", "specfleet-operator", "--ignore-not-found")
        found: dict[str, Any] = json.loads(self.kubectl("-n", OPERATOR_NAMESPACE, "get", *lease, "-o", "json") or "{}")
        return found.get("spec", {})

    def leader(self) -> str:
        """Name of the operator's pod that holds the Lease, empty while none does."""
        return str(self.lease().get("holderIdentity", ""))

    def _led(self) -> bool:
        """One of the pods leads, and none is on its way out."""
        pods = [pod["metadata"] for pod in self.operators()]
        return not any("deletionTimestamp" in pod for pod in pods) and self.leader() in [pod["name"] for pod in pods]

    def kill(self, pod: Mapping[str, Any]) -> None:
        """SIGKILL to what runs in a pod's containers; the kubelet starts them again."""
        self._signal(pod, signal.SIGKILL)

    def freeze(self, pod: Mapping[str, Any]) -> None:
        """SIGSTOP to what runs in a pod's containers: they stand still, with all that they know."""
        self._signal(pod, signal.SIGSTOP)

    def wake(self, pod: Mapping[str, Any]) -> None:
        """SIGCONT: they go on where they stood."""
        self._signal(pod, signal.SIGCONT)

    def processes(self, pod: Mapping[str, Any]) -> list[int]:
        """Pids, as this machine sees them, of what runs in a pod's containers."""
        found = [pid for pid in _processes(self.cluster, pod["metadata"]["uid"]) if not _is_pause(pid)]
        if not found:
            raise HarnessError(f"no process of pod {pod['metadata']['name']}")
        return found

    def _signal(self, pod: Mapping[str, Any], number: signal.Signals) -> None:
        reached = self.processes(pod)
        self.say(f"{number.name} to {' '.join(map(str, reached))} in pod {pod['metadata']['name']}")
        for pid in reached:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def writes(self, pod: str, since: float) -> list[str]:
        """What a pod asked the API server to change from `since` (Unix epoch) on; told by the audit log."""
        with self.cluster.settings.audit_log.open() as log:
            events = [json.loads(line) for line in log if line.endswith("\n") and pod in line]
        return [
            f"{event['verb']} {event['requestURI']} {event['responseStatus']['code']}"
            for event in events
            if event["user"].get("extra", {}).get("authentication.kubernetes.io/pod-name") == [pod]
            and event["verb"] in ("create", "update", "patch", "delete", "deletecollection")
            and datetime.fromisoformat(event["requestReceivedTimestamp"].replace("Z", "+00:00")).timestamp() >= since
        ]

    @contextmanager
    def restricted(self, namespace: str) -> Iterator[None]:
        """For as long as the context lasts, a namespace refuses new pods that Kubernetes' `restricted` profile does."""
        self.kubectl("label", "namespace", namespace, f"{ENFORCE}=restricted")
        try:
            yield
        finally:
            self.kubectl("label", "namespace", namespace, f"{ENFORCE}-")

    def turn(self, pods: Iterable[Mapping[str, Any]], **dials: Any) -> None:
        """Turn dials of simulated servers, from now on and until they restart."""
        for pod in pods:
            url = f"http://{pod['status']['podIP']}:8000/sim"
            command = [*self.cluster.exec_prefix, sys.executable, "-c", PUT, url, json.dumps(dials)]
            subprocess.run(command, check=True, capture_output=True, timeout=10)

    @contextmanager
    def load(
        self,
        name: str,
        rate: float,
        mix: str,
        max_tokens: int = 60,
        stream_share: float = 0.5,
        seconds: float = 600,
        host: str = "",
        headers: Mapping[str, str] | None = None,
        filler: int = 40,
        grace: int = GRACE,
    ) -> Iterator[Load]:
        """Open arrivals at `Service <name>`, or with `host` at the gateway; a connection per request, no retries."""
        key = f"load-{name}-{next(self._loads)}"
        file = self.cluster.state / f"{key}.json"
        sent = {**({"Host": host} if host else {}), **(headers or {})}
        command = [
            sys.executable, "-m", "harness.loadgen", "--url", self._url(name, host), "--rate", str(rate),
            "--seconds", str(seconds), "--mix", mix, "--max-tokens", str(max_tokens), "--json", str(file),
            "--stream-share", str(stream_share), "--grace", str(grace), "--filler", str(filler),
            *itertools.chain.from_iterable(("--header", f"{key}: {value}") for key, value in sent.items()),
        ]  # fmt: skip
        daemon = self._daemon(key, command)
        load = Load(daemon, file)
        try:
            yield load
        finally:
            load.finish()

    def _url(self, name: str, host: str) -> str:
        """Where load for a fleet goes: to the gateway if it asks for a host."""
        if not host:
            return f"http://{self.kubectl('get', 'svc', name, '-o', 'jsonpath={.spec.clusterIP}')}:8000"
        if self.gateway is None:
            raise HarnessError(f"no gateway on this stage for {host}")
        return self.gateway.address

    @contextmanager
    def witness(self, name: str) -> Iterator[Callable[[], Log]]:
        """The pods' own counters, read from outside every second; gives a function that returns the latest."""
        file = self.cluster.state / f"witness-{name}.json"
        command = [
            sys.executable, "-m", "harness.witness", "--selector", f"specfleet.dev/deployment={name}",
            "--file", str(file), "--kubectl", f"{self.cluster.settings.kube}/kubectl",
            "--kubeconfig", str(self.cluster.kubeconfig),
            "--kinds", "pods,services,httproutes" if self.gateway else "pods,services",
        ]  # fmt: skip
        daemon = self._daemon(f"witness-{name}", command)
        try:
            self.wait("witness", 20, file.exists)
            yield lambda: Log.read(file)
        finally:
            daemon.stop()

    def _daemon(self, name: str, command: list[str]) -> Daemon:
        log = self.cluster.state / f"log/{name}.log"
        environment = {**os.environ, "PYTHONPATH": str(PROJECT / "e2e")}
        return Daemon(name, [*self.cluster.exec_prefix, *command], log, environment)


def _restricted(namespace: str) -> dict[str, Any]:
    """The namespace of the operator, whose own pods ask for nothing that the strictest profile refuses."""
    labels = {ENFORCE: "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}


def _processes(cluster: Cluster, uid: str) -> Iterator[int]:
    """Pids, as this machine sees them, in the cgroup of one of the cluster's pods."""
    for cgroup in Path("/proc").glob("[0-9]*/cgroup"):
        with suppress(OSError):  # it has ended
            text = cgroup.read_text()
            if cluster.settings.name in text and uid in text.replace("_", "-"):
                yield int(cgroup.parent.name)


def _is_pause(pid: int) -> bool:
    """The process that holds a pod's namespaces."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"/pause")
