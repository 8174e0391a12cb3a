"""A cluster with the operator installed from its chart, and what a story needs on it: resources, load, a witness."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from harness import images
from harness.cluster import Cluster
from harness.errors import HarnessError, say
from harness.loadreport import Report
from harness.loadreport import read as read_report
from harness.node import ensure_helm
from harness.process import Daemon
from harness.witness import Log

PROJECT = Path(__file__).parents[2]
OPERATOR_NAMESPACE = "specfleet-system"
TAG = "dev"
GRACE = 30  # seconds that a load generator waits for answers on their way
PUT = "import sys, urllib.request as r; r.urlopen(r.Request(sys.argv[1], sys.argv[2].encode(), method='PUT'))"


class Stage:
    """One cluster with the operator. Everything that it starts ends with it."""

    def __init__(self, gpus: int = 8, set: Mapping[str, str] | None = None):
        self._gpus, self._set = gpus, dict(set or {})
        self._stack = ExitStack()
        self._begin = time.monotonic()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            say("Images of the operator and of the simulated vLLM server ...")
            archives = [images.build("operator", TAG), images.build("vllm-sim")]
            say("A Kubernetes cluster with 8 made-up MI300X ...")
            self.cluster = stack.enter_context(Cluster(gpus=self._gpus, images=archives))
            self.install()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def install(self) -> None:
        """`helm upgrade --install` of the chart in this checkout, and wait until the operator leads."""
        values = {"image.tag": TAG, "image.pullPolicy": "Never", "log.format": "text", **self._set}
        flags = [f"--set={key}={value}" for key, value in values.items()]
        self.helm("upgrade", "--install", "specfleet", str(PROJECT / "charts/specfleet"), *flags)
        self.kubectl("wait", "--for=condition=Established", "crd/specdecodedeployments.specfleet.dev", "--timeout=30s")
        self.kubectl("-n", OPERATOR_NAMESPACE, "rollout", "status", "deploy/specfleet", "--timeout=120s")
        self.say("the operator is installed from its Helm chart")

    def say(self, what: str) -> None:
        """A line of the story, with the seconds since its start."""
        print(f"{time.monotonic() - self._begin:6.1f} s  {what}", flush=True)

    def helm(self, *arguments: str) -> str:
        """What helm prints, as administrator of the cluster."""
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig), "HOME": str(self.cluster.state)}
        command = [*self.cluster.exec_prefix, str(ensure_helm() / "helm"), *arguments]
        command += ["--namespace", OPERATOR_NAMESPACE, "--create-namespace"]
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
        return self.kubectl("-n", OPERATOR_NAMESPACE, "logs", "deploy/specfleet", f"--tail={lines}")

    def operator(self) -> dict[str, Any]:
        """The operator's pod."""
        found = json.loads(self.kubectl("-n", OPERATOR_NAMESPACE, "get", "pods", "-o", "json"))["items"]
        if len(found) != 1:
            raise HarnessError(f"{len(found)} operator pods")
        pod: dict[str, Any] = found[0]
        return pod

    def kill(self, pod: Mapping[str, Any]) -> None:
        """SIGKILL to what runs in a pod's containers; the kubelet starts them again."""
        victims = [pid for pid in _processes(self.cluster, pod["metadata"]["uid"]) if not _is_pause(pid)]
        if not victims:
            raise HarnessError(f"no process of pod {pod['metadata']['name']}")
        self.say(f"kill -9 {' '.join(map(str, victims))} in pod {pod['metadata']['name']}")
        for pid in victims:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

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
    ) -> Iterator["Load"]:
        """Open arrivals at `Service <name>`, a connection per request, no retries."""
        address = self.kubectl("get", "svc", name, "-o", "jsonpath={.spec.clusterIP}")
        file = self.cluster.state / f"load-{name}.json"
        command = [
            sys.executable, "-m", "harness.loadgen", "--url", f"http://{address}:8000", "--rate", str(rate),
            "--seconds", str(seconds), "--mix", mix, "--max-tokens", str(max_tokens), "--json", str(file),
            "--stream-share", str(stream_share), "--grace", str(GRACE),
        ]  # fmt: skip
        daemon = self._daemon(f"load-{name}", command)
        load = Load(daemon, file)
        try:
            yield load
        finally:
            load.finish()

    @contextmanager
    def witness(self, name: str) -> Iterator[Callable[[], Log]]:
        """The pods' own counters, read from outside every second; gives a function that returns the latest."""
        file = self.cluster.state / f"witness-{name}.json"
        command = [
            sys.executable, "-m", "harness.witness", "--selector", f"specfleet.dev/deployment={name}",
            "--file", str(file), "--kubectl", f"{self.cluster.settings.kube}/kubectl",
            "--kubeconfig", str(self.cluster.kubeconfig),
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


class Load:
    """A running load generator."""

    def __init__(self, daemon: Daemon, file: Path):
        self._daemon, self._file = daemon, file

    @property
    def report(self) -> Report:
        """What it has seen so far."""
        return read_report(self._file)

    def started(self) -> bool:
        """It has written its first report."""
        return self._file.exists()

    def finish(self) -> Report | None:
        """Stop sending, wait for answers on their way, and return the whole report."""
        try:
            os.kill(self._daemon.pid, signal.SIGTERM)
            end = time.monotonic() + GRACE + 5
            while time.monotonic() < end and not (self._file.exists() and self.report.done):
                time.sleep(0.1)
        except ProcessLookupError:
            pass
        self._daemon.stop()
        return self.report if self._file.exists() else None


def _processes(cluster: Cluster, uid: str) -> Iterator[int]:
    """Pids, as this machine sees them, in the cgroup of one of the cluster's pods."""
    for cgroup in Path("/proc").glob("[0-9]*/cgroup"):
        with suppress(OSError):  # it has ended
            text = cgroup.read_text()
            if cluster.name in text and uid in text:
                yield int(cgroup.parent.name)


def _is_pause(pid: int) -> bool:
    """The process that holds a pod's namespaces."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"/pause")
