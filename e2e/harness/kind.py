"""The same cluster on kind, for machines with Docker: its node is a container. It cannot be tried without Docker."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import nodeconfig
from harness.cluster import DIRECTORY, Cluster
from harness.errors import HarnessError, say
from harness.node import ensure_helm

NODE_IMAGE = "kindest/node:v1.37.0"


class KindCluster(Cluster):
    """One node with made-up GPUs: the scheduler counts them, and nothing is mounted into pods."""

    @property
    def exec_prefix(self) -> list[str]:
        """Into the network namespace of the node's container, where pods and Services have their addresses."""
        pid = _run("docker", "inspect", "--format={{.State.Pid}}", f"{self.name}-control-plane").strip()
        return ["nsenter", f"--net=/proc/{pid}/ns/net"]

    def start(self) -> None:
        """Returns when the node is Ready, the images are there and the GPUs allocatable."""
        for program in ("docker", "kind"):
            if shutil.which(program) is None:
                raise HarnessError(f"CLUSTER=kind needs {program} on PATH")
        self._directory = state = Path(tempfile.mkdtemp(prefix=DIRECTORY))
        try:
            (state / "log").mkdir()
            say(f"kind creates {self.name} ({NODE_IMAGE}) ...")
            _run("kind", "create", "cluster", f"--name={self.name}", f"--image={NODE_IMAGE}", "--wait=180s",
                 f"--kubeconfig={state}/outside.kubeconfig")  # fmt: skip
            container = _run("docker", "inspect", "--format={{.Id}}", f"{self.name}-control-plane").strip()
            kubectl = ensure_helm()  # it has kubectl too
            self._settings = nodeconfig.Settings(container, state, kubectl, kubectl, (), self._gpus, "", False)
            self._write_kubeconfig()
            for archive in self._images:
                self.import_image(archive)
            self._add_gpus()
        except BaseException:
            self.stop()
            raise

    def _write_kubeconfig(self) -> None:
        """The administrator's, with the address that the API server has inside the node."""
        text = _run("kind", "get", "kubeconfig", f"--name={self.name}", "--internal")
        self.settings.keys.mkdir()
        self.kubeconfig.write_text(text.replace(f"https://{self.name}-control-plane:6443", "https://127.0.0.1:6443"))

    def _add_gpus(self) -> None:
        node = json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"][0]["metadata"]["name"]
        self.kubectl("label", "node", node, *(f"{key}={value}" for key, value in nodeconfig.NODE_LABELS.items()))
        self.kubectl("taint", "node", node, "node-role.kubernetes.io/control-plane-", check=False)
        patch = {"status": {"capacity": {"amd.com/gpu": str(self._gpus)}}}
        self.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", json.dumps(patch))

    @contextmanager
    def unplugged(self) -> Iterator[None]:
        """For as long as the context lasts no GPU is allocatable; pods keep what they have."""
        gpus, self._gpus = self._gpus, 0
        self._add_gpus()
        try:
            yield
        finally:
            self._gpus = gpus
            self._add_gpus()

    def check(self) -> None:
        """Docker keeps it running."""

    def import_image(self, archive: Path) -> None:
        """Put the image of an archive on the node."""
        _run("kind", "load", "image-archive", str(archive), f"--name={self.name}")

    def stop(self) -> None:
        """Ends the node's container and removes every file."""
        if self._directory is not None:
            subprocess.run(["kind", "delete", "cluster", f"--name={self.name}"], capture_output=True, check=False)
            shutil.rmtree(self._directory, ignore_errors=True)
        self._settings = self._directory = None


def _run(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise HarnessError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout
