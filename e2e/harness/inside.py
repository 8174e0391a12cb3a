"""The first process inside a cluster's namespaces: mounts, starts the daemons, waits until all is up, and reaps.

When it ends, the kernel ends everything in the namespaces. Each stage is a line on stdout; "up" is the last.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from harness import isolation, nodeconfig, pki
from harness.api import Api
from harness.controlplane import (
    DEFAULT_ACCOUNT,
    apiserver_arguments,
    audit_arguments,
    controller_manager_arguments,
    etcd_arguments,
)
from harness.errors import HarnessError
from harness.nodeconfig import ADDRESS, NODE, URL, Settings
from harness.process import Daemon, tail, wait_for

# Kubelet wants these for the whole machine. It reads them first, and writes nothing when they are as wanted.
SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}
NODE_PATH = f"/api/v1/nodes/{NODE}"


class Inside:
    """The daemons of one cluster."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.daemons: list[Daemon] = []
        self.environment = {
            **os.environ,
            "PATH": f"{settings.kube}:{settings.node}/bin:{os.environ['PATH']}",
            "HOME": str(settings.state),
        }
        self.imports: list[subprocess.CompletedProcess[str]] = []

    def start(self, name: str, *arguments: object, node_libraries: bool = False) -> None:
        environment = dict(self.environment)
        if node_libraries:  # Debian's programs, and kube-proxy, which runs nft
            environment["LD_LIBRARY_PATH"] = f"{self.settings.node}/lib"
        log = self.settings.state / f"log/{name}.log"
        folder = self.settings.node / "bin" if name == "containerd" else self.settings.kube
        self.daemons.append(Daemon(name, [folder / name, *map(str, arguments)], log, environment))

    def check(self) -> None:
        for daemon in self.daemons:
            daemon.check()

    def wait(self, what: str, ready: Callable[[], bool]) -> None:
        wait_for(what, 90, ready, self.check)
        print(what, flush=True)

    def run(self) -> None:
        settings, keys = self.settings, self.settings.keys
        self.start("containerd", f"--config={settings.state}/etc/containerd.toml", node_libraries=True)
        self.start("etcd", *etcd_arguments(settings.state / "etcd"))
        self.start("kube-apiserver", *apiserver_arguments(keys), *_apiserver_of_node(settings))
        importing = threading.Thread(target=self.import_images, daemon=True)
        importing.start()
        api = Api(URL, keys)
        self.wait("API server ready", lambda: api.answers("/readyz"))
        self.start_node()
        self.wait("node Ready", lambda: is_ready(api.object(NODE_PATH)))
        self.wait("service account", lambda: api.answers(DEFAULT_ACCOUNT))
        self.wait(f"{len(settings.images)} images imported", lambda: not importing.is_alive())
        for result in self.imports:
            if result.returncode != 0:
                raise HarnessError(f"'{' '.join(map(str, result.args))}' failed: {result.stderr.strip()}")
        if settings.gpus:
            self.wait(f"{settings.gpus} GPUs", lambda: gpus(api.object(NODE_PATH)) == settings.gpus)
        print("up", flush=True)

    def start_node(self) -> None:
        settings, keys = self.settings, self.settings.keys
        self.start(
            "kube-controller-manager",
            *controller_manager_arguments(keys),
            "--node-monitor-period=2s",
            "--horizontal-pod-autoscaler-sync-period=3s",
        )
        self.start(
            "kube-scheduler",
            f"--kubeconfig={keys}/scheduler.kubeconfig",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        )
        self.start(
            "kubelet",
            f"--config={settings.state}/etc/kubelet.json",
            f"--kubeconfig={keys}/kubelet.kubeconfig",
            f"--hostname-override={NODE}",
            f"--node-ip={ADDRESS}",
            "--node-labels=" + ",".join(f"{k}={v}" for k, v in nodeconfig.NODE_LABELS.items()),
        )
        self.start("kube-proxy", f"--config={settings.state}/etc/proxy.json", node_libraries=True)
        if settings.gpus:
            plugin = ("fake-device-plugin", "--count", settings.gpus, "--unhealthy-file", settings.unhealthy)
            self.start("localkube", *plugin)

    def import_images(self) -> None:
        """While the control plane starts, so that it costs no time."""
        socket_file = self.settings.containerd_socket
        wait_for("containerd", 60, socket_file.exists, self.check)
        for image in self.settings.images:
            command = import_command(self.settings, image)
            self.imports.append(subprocess.run(command, capture_output=True, text=True, check=False))

    def reap(self) -> None:
        """Forever: orphans of containers come to the first process. A daemon that ends, ends the cluster."""
        while True:
            pid, status = os.wait()
            for daemon in self.daemons:
                if daemon.pid == pid:
                    raise HarnessError(f"{daemon.name} ended with wait status {status}:\n{tail(daemon.log)}")


def import_command(settings: Settings, archive: Path) -> list[str]:
    ctr = [f"{settings.node}/bin/ctr", f"--address={settings.containerd_socket}", "--namespace=k8s.io"]
    return [*ctr, "images", "import", f"--snapshotter={settings.snapshotter}", str(archive)]


def is_ready(node: dict) -> bool:  # type: ignore[type-arg]
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def gpus(node: dict) -> int:  # type: ignore[type-arg]
    return int(node.get("status", {}).get("allocatable", {}).get("amd.com/gpu", 0))


def _apiserver_of_node(settings: Settings) -> list[str]:
    audit = audit_arguments(settings.state / "etc/audit-policy.json", settings.audit_log) if settings.audit else []
    return [
        *audit,
        f"--bind-address={ADDRESS}",
        f"--advertise-address={ADDRESS}",
        "--secure-port=6443",
        f"--service-cluster-ip-range={nodeconfig.SERVICES}",
        f"--kubelet-client-certificate={settings.keys}/{pki.APISERVER_KUBELET.name}.crt",
        f"--kubelet-client-key={settings.keys}/{pki.APISERVER_KUBELET.name}.key",
        f"--kubelet-certificate-authority={settings.keys}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        "--enable-admission-plugins=NodeRestriction",
    ]


def mount(*arguments: object) -> None:
    result = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise HarnessError(f"'mount {' '.join(map(str, arguments))}' failed: {result.stderr.strip()}")


def bind(source: Path, target: str) -> None:
    source.mkdir(parents=True, exist_ok=True)
    Path(target).mkdir(parents=True, exist_ok=True)
    mount("--bind", source, target)


def mount_all(state: Path) -> None:
    mount("-t", "proc", "proc", "/proc")
    _mount_sys(state)
    for folder in ("/run", "/var/lib", "/var/log"):  # over the host's: nothing is written outside `state`
        mount("-t", "tmpfs", "-o", "mode=755", "own", folder)
    bind(state / "kubelet", "/var/lib/kubelet")
    mount("--make-shared", "/var/lib/kubelet")
    bind(state / "containerd", "/var/lib/containerd")
    bind(state / "log/pods", "/var/log/pods")
    for folder in ("/run/containerd", "/run/lock"):
        Path(folder).mkdir()
    for name, value in SYSCTLS.items():
        file = state / f"sysctl/{name.replace('/', '_')}"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{value}\n")
        mount("--bind", file, f"/proc/sys/{name}")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _mount_sys(state: Path) -> None:
    """The /sys of this network namespace, with the cgroups as they were."""
    keep = state / "cgroups"
    keep.mkdir()
    mount("--rbind", isolation.CGROUPS, keep)
    mount("-t", "sysfs", "sysfs", "/sys")
    mount("--rbind", keep, isolation.CGROUPS)
    subprocess.run(["umount", "-R", "-l", str(keep)], check=True)


def main(state: Path) -> int:
    settings = Settings.load(state)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    cluster = Inside(settings)
    try:
        socket.sethostname(NODE)
        mount_all(state)
        isolation.join_cgroup(settings.name)
        cluster.run()
        cluster.reap()
    except HarnessError as error:
        print(error, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
