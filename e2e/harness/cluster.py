"""A whole one-node Kubernetes in namespaces of its own: real kubelet and containers, made-up AMD GPUs. Needs root."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from harness import binaries, images, inside, isolation, node, nodeconfig, pki
from harness.debian import need
from harness.errors import HarnessError, say
from harness.process import Daemon, uninterrupted

DIRECTORY = "specfleet-cluster-"  # then the pid
HIDDEN = ("/run", "/var/run", "/var/lib", "/var/log")  # the cluster mounts its own over them
CERTIFICATES = (
    pki.apiserver(nodeconfig.ADDRESS, nodeconfig.FIRST_SERVICE, "127.0.0.1"),
    pki.kubelet_server(nodeconfig.NODE, nodeconfig.ADDRESS),
    pki.kubelet(nodeconfig.NODE),
    pki.APISERVER_KUBELET,
    pki.ADMIN,
    pki.CONTROLLER_MANAGER,
    pki.SCHEDULER,
    pki.PROXY,
)


class Cluster:
    """One at a time in a process; any number in several. Start it in a thread that lives as long as it."""

    node = nodeconfig.NODE
    _running = False  # in this process, whose pid names the cluster

    def __init__(self, gpus: int = 8, images: Iterable[Path] = (), audit: bool = False):
        self._gpus, self._images, self._audit = gpus, tuple(images), audit
        self.name = f"{isolation.PREFIX}{os.getpid()}"
        self._directory: Path | None = None
        self._settings: nodeconfig.Settings | None = None
        self._supervisor: Daemon | None = None

    @property
    def settings(self) -> nodeconfig.Settings:
        if self._settings is None:
            raise HarnessError("the cluster is not started")
        return self._settings

    @property
    def state(self) -> Path:
        """All that the cluster writes; `log/` has a file for each daemon, `unhealthy-gpus` may name GPUs to break."""
        return self.settings.state

    @property
    def kubeconfig(self) -> Path:
        """Of the administrator; the address in it exists only inside the network namespace: see `exec_prefix`."""
        return self.settings.keys / "admin.kubeconfig"

    @property
    def exec_prefix(self) -> list[str]:
        """Put before a command, it runs where pod, service and API addresses are reachable."""
        return ["nsenter", f"--net={isolation.NETNS / self.name}"]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when the node is Ready, the images are there and the GPUs allocatable."""
        _require_root()
        kube, programs = binaries.ensure_kube(), node.ensure_node()
        archives = (images.build("pause"), *self._images)
        if Cluster._running:
            raise HarnessError("this process has a cluster already: one at a time")
        remove_stale()
        isolation.remove(self.name)  # left by a dead process that had our pid
        self._begin = time.monotonic()
        try:
            self._directory = Path(tempfile.mkdtemp(prefix=f"{DIRECTORY}{os.getpid()}-"))
            Cluster._running, state = True, self._directory
            _require_visible(state, kube, programs, *archives, Path(__file__), Path(sys.executable))
            self._settings = nodeconfig.Settings(
                self.name, state, kube, programs, archives, self._gpus, _snapshotter(state), self._audit
            )
            self._create()
            self._wait_until_up()
        except BaseException:
            self.stop()
            raise

    def _create(self) -> None:
        isolation.create_network(self.name)
        isolation.create_cgroups(self.name)
        self._stage("network namespace and cgroups")
        pki.write(self.settings.keys, nodeconfig.URL, CERTIFICATES)
        nodeconfig.write(self.settings)
        self.settings.save()
        (self.state / "log").mkdir()
        self._stage("certificates")
        unshare = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--propagation=private"]
        command = [*self.exec_prefix, *unshare, sys.executable, "-m", "harness.inside", str(self.state)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        self._supervisor = Daemon("the cluster", command, self.state / "log/supervisor.log", environment)

    def _wait_until_up(self) -> None:
        """Show the stages that the first process inside reports, until it says that all is up."""
        assert self._supervisor is not None
        with open(self._supervisor.log) as log:
            while (line := log.readline().rstrip()) != "up":
                if line:
                    self._stage(line)
                else:
                    self.check()
                    time.sleep(0.05)
        self._stage("up")

    def _stage(self, what: str) -> None:
        say(f"{time.monotonic() - self._begin:6.2f} s  {what}")

    def check(self) -> None:
        """Raise if the cluster has ended, with what it said last."""
        if self._supervisor is not None:
            self._supervisor.check()

    def wait(self) -> None:
        """Until it ends, which is an error; Ctrl-C gets out."""
        while True:
            self.check()
            time.sleep(1)

    def stop(self) -> None:
        """Ends every process and removes every mount, namespace, cgroup and file; harmless when nothing is there."""
        with uninterrupted():
            if self._supervisor is not None:
                self._supervisor.stop()
            if self._settings is not None:
                isolation.remove(self.name)
            if self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
                Cluster._running = False
            self._supervisor = self._settings = self._directory = None

    def kubectl(self, *arguments: str, input: str | None = None, check: bool = True) -> str:
        """What kubectl prints, as administrator; with `check` a failure raises, without it stderr is added."""
        program = [f"{self.settings.kube}/kubectl", f"--kubeconfig={self.kubeconfig}"]
        environment = {**os.environ, "KUBECACHEDIR": str(self.state / "kubectl-cache")}
        result = subprocess.run(
            [*self.exec_prefix, *program, *arguments],
            input=input,
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        if check and result.returncode != 0:
            self.check()
            raise HarnessError(f"kubectl {' '.join(arguments)}: {result.stderr.strip()}")
        return result.stdout if check else result.stdout + result.stderr

    @contextmanager
    def unplugged(self) -> Iterator[None]:
        """For as long as the context lasts the device plugin is gone: no GPU is allocatable, pods keep what they have.

        Without its socket the plugin ends its service, and without kubelet's it cannot register again.
        """
        sockets = self.state / "kubelet/device-plugins"
        kubelet, aside = sockets / "kubelet.sock", self.state / "kubelet.sock"
        kubelet.rename(aside)
        try:
            (sockets / "amd.com_gpu.sock").unlink()
            yield
        finally:
            aside.rename(kubelet)

    def import_image(self, archive: Path) -> None:
        """Put the image of an archive on the node, beside those that it has."""
        result = subprocess.run(
            inside.import_command(self.settings, archive), capture_output=True, text=True, check=False
        )
        if result.returncode != 0:
            raise HarnessError(f"{archive} could not be imported: {result.stderr.strip()}")


def remove_stale() -> None:
    """What runs left that were killed; their processes died with them."""
    for name in isolation.stale():
        isolation.remove(name)
    for folder in Path(tempfile.gettempdir()).glob(f"{DIRECTORY}*"):
        if not isolation.is_alive(folder.name.removeprefix(DIRECTORY).partition("-")[0]):
            shutil.rmtree(folder, ignore_errors=True)


def _require_root() -> None:
    if os.geteuid() != 0:
        raise HarnessError("a cluster needs root for namespaces, mounts and cgroups: use sudo")
    for program, package in (("nsenter", "util-linux"), ("mount", "mount"), ("ip", "iproute2")):
        need(program, package)


def _require_visible(*paths: Path) -> None:
    for path in map(Path.resolve, paths):
        if hidden := next((h for h in HIDDEN if path.is_relative_to(h)), None):
            raise HarnessError(
                f"{path} cannot be used: a cluster mounts its own {hidden} (set TMPDIR or XDG_CACHE_HOME, or move it)"
            )


def _snapshotter(state: Path) -> str:
    """Overlays do not stack (a container's own root is one): copy whole trees there."""
    kind = subprocess.run(["stat", "-fc", "%T", state], capture_output=True, text=True, check=True).stdout.strip()
    return "native" if kind == "overlayfs" else "overlayfs"
