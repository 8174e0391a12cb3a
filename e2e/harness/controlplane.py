"""A real control plane on loopback: etcd, kube-apiserver, kube-controller-manager; as any user, many side by side."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from harness import binaries, pki
from harness.api import Api
from harness.errors import HarnessError
from harness.process import Daemon, free_ports, uninterrupted, wait_for

PREFIX = "specfleet-controlplane-"
DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"  # there once namespaces take pods
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


class ControlPlane:
    """Pods are stored and owned here but never scheduled or run. Start it in a thread that lives as long as it.

    With `audit`, `audit_log` gets one JSON line for each request that the API server has answered.
    """

    def __init__(self, audit: bool = False):
        self._audit = audit
        self._daemons: list[Daemon] = []
        self._directory: Path | None = None
        self.url = ""

    @property
    def directory(self) -> Path:
        if self._directory is None:
            raise HarnessError("the control plane is not started")
        return self._directory

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "pki/admin.kubeconfig"

    @property
    def audit_log(self) -> Path:
        return self.directory / "audit.jsonl"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when the API answers and the default namespace takes pods."""
        self._bin = binaries.ensure_kube(binaries.CONTROL_PLANE)
        _remove_stale()
        self._directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        secure, client, peer = free_ports(3)
        self.url = f"https://127.0.0.1:{secure}"
        keys = self.directory / "pki"
        self._run("etcd", etcd_arguments(self.directory / "etcd", client, peer))
        pki.write(keys, self.url, [pki.apiserver("127.0.0.1", "10.96.0.1"), pki.ADMIN, pki.CONTROLLER_MANAGER])
        self._run("kube-apiserver", [*apiserver_arguments(keys, client), *self._own_arguments(secure)])
        self._run("kube-controller-manager", controller_manager_arguments(keys))
        api = Api(self.url, keys)
        wait_for("answer of kube-apiserver", 90, lambda: api.answers("/readyz"), self.check)
        wait_for("service account", 60, lambda: api.answers(DEFAULT_ACCOUNT), self.check)

    def _own_arguments(self, port: int) -> list[str]:
        arguments = ["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={port}"]
        arguments += ["--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none"]
        if self._audit:
            arguments += audit_arguments(self.directory / "audit-policy.json", self.audit_log)
        return arguments

    def _run(self, name: str, arguments: Sequence[str]) -> None:
        self._daemons.append(Daemon(name, [self._bin / name, *arguments], self.directory / f"{name}.log"))

    def check(self) -> None:
        """Raise if one of the daemons has ended, with the end of its log."""
        for daemon in self._daemons:
            daemon.check()

    def stop(self) -> None:
        """Kill all and remove everything; harmless when nothing runs."""
        with uninterrupted():
            while self._daemons:
                self._daemons.pop().stop()
            if self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
                self._directory = None

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        """What kubectl prints, as cluster administrator; an error carries what it says on stderr."""
        command = [str(self._bin / "kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]
        environment = {**os.environ, "KUBECACHEDIR": str(self.directory / "kubectl-cache")}
        result = subprocess.run(command, input=input, capture_output=True, text=True, env=environment, check=False)
        if result.returncode != 0:
            self.check()
            raise HarnessError(f"kubectl {' '.join(arguments)}: {result.stderr.strip()}")
        return result.stdout


def etcd_arguments(data: Path, client: int = 2379, peer: int = 2380) -> list[str]:
    """Without fsync: the data is thrown away at the end."""
    client_url, peer_url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    return [
        f"--data-dir={data}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        f"--listen-client-urls={client_url}",
        f"--advertise-client-urls={client_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
    ]


def apiserver_arguments(folder: Path, etcd: int = 2379) -> list[str]:
    """What every API server of ours is started with; address, port and services are its owner's."""
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        f"--tls-cert-file={folder}/apiserver.crt",
        f"--tls-private-key-file={folder}/apiserver.key",
        f"--client-ca-file={folder}/ca.crt",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={folder}/sa.pub",
        f"--service-account-signing-key-file={folder}/sa.key",
        "--authorization-mode=Node,RBAC",
        "--profiling=false",
    ]


def audit_arguments(policy: Path, log: Path) -> list[str]:
    """One JSON line in `log` for each request that is answered; the policy's file is written here."""
    policy.write_text(json.dumps(AUDIT_POLICY))
    return [f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-maxsize=2000"]


def controller_manager_arguments(folder: Path) -> list[str]:
    """With a high client rate: the default of 20 requests a second costs 5 s at start."""
    return [
        f"--kubeconfig={folder}/controller-manager.kubeconfig",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={folder}/sa.key",
        f"--root-ca-file={folder}/ca.crt",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]


def _remove_stale() -> None:
    """Directories of runs that were killed; their daemons died with them."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if not Path("/proc", pid).exists():
            shutil.rmtree(folder, ignore_errors=True)
