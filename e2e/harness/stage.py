"""A cluster with the operator installed from its chart, and what a story needs on it: resources, load, a witness."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
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

    def apply(self, manifest: Mapping[str, Any]) -> None:
        """kubectl apply one object."""
        self.kubectl("apply", "-f", "-", input=json.dumps(manifest))

    def patch(self, name: str, spec: Mapping[str, Any]) -> None:
        """Edit the spec of an SDD."""
        self.kubectl("patch", "sdd", name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def sdd(self, name: str) -> dict[str, Any]:
        """The SDD as it is now."""
        found: dict[str, Any] = json.loads(self.kubectl("get", "sdd", name, "-o", "json"))
        return found

    def status(self, name: str) -> dict[str, Any]:
        """Its status, empty before there is one."""
        found: dict[str, Any] = self.sdd(name).get("status", {})
        return found

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

    def operator_log(self) -> str:
        """The end of the operator's log."""
        return self.cluster.kubectl("-n", OPERATOR_NAMESPACE, "logs", "deploy/specfleet", "--tail=40", check=False)

    def operator_pid(self) -> int:
        """Pid of the operator's process, as this machine sees it."""
        found = subprocess.run(
            ["pgrep", "-f", f"python3 -m specfleet.controller.app.*{OPERATOR_NAMESPACE}|specfleet.controller.app"],
            capture_output=True, text=True, check=False,
        ).stdout.split()  # fmt: skip
        inside = [int(pid) for pid in found if _in_netns_of(int(pid), self.cluster)]
        if len(inside) != 1:
            raise HarnessError(f"{len(inside)} operator processes")
        return inside[0]

    @contextmanager
    def load(self, name: str, rate: float, mix: str, seconds: float = 600, max_tokens: int = 60) -> Iterator["Load"]:
        """Open arrivals at `Service <name>`, a connection per request, no retries."""
        address = self.kubectl("get", "svc", name, "-o", "jsonpath={.spec.clusterIP}")
        file = self.cluster.state / f"load-{name}.json"
        command = [
            sys.executable, "-m", "harness.loadgen", "--url", f"http://{address}:8000", "--rate", str(rate),
            "--seconds", str(seconds), "--mix", mix, "--max-tokens", str(max_tokens), "--json", str(file),
            "--stream-share", "0.5",
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
            end = time.monotonic() + 20
            while time.monotonic() < end and not (self._file.exists() and self.report.done):
                time.sleep(0.1)
        except ProcessLookupError:
            pass
        self._daemon.stop()
        return self.report if self._file.exists() else None


def _in_netns_of(pid: int, cluster: Cluster) -> bool:
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False
    return cluster.name in text
