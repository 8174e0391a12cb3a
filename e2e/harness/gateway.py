"""Two real implementations of the Gateway API as processes in a cluster's network namespace, each with one Gateway.

Envoy Gateway 1.9 starts its Envoy itself; beside Contour 1.33 we start the same Envoy. They differ where the standard
leaves room (splits, backends without endpoints, references to nothing), so what holds on both holds.
"""

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import gatewaybins, nodeconfig
from harness.cluster import Cluster
from harness.errors import HarnessError, say
from harness.process import Daemon, wait_for

NAMESPACE, GATEWAY, LISTENER = "gateways", "public", "http"
PORT = 18080  # where Envoy listens, at the node's address
SECONDS = 60  # until the Gateway is programmed
Command = list[str | Path]
CONNECT = f"import socket; socket.create_connection(('{nodeconfig.ADDRESS}', {PORT}), 1)"


class Gateway:
    """One implementation with its Gateway, which takes routes from all namespaces.

    Start it in a thread that lives as long as it, like the cluster.
    """

    name: str
    controller: str  # in status.parents[].controllerName of a route
    port: int  # of the listener
    address = f"http://{nodeconfig.ADDRESS}:{PORT}"  # for commands after the cluster's exec_prefix
    parent: Mapping[str, str] = {"name": GATEWAY, "namespace": NAMESPACE, "sectionName": LISTENER}

    def __init__(self) -> None:
        self.crds = [gatewaybins.ensure_gateway_crds()]
        self.envoy = gatewaybins.ensure_envoy()
        self._daemons: list[Daemon] = []

    def start(self, cluster: Cluster) -> None:
        """Install the Gateway API's kinds and the Gateway, and return when it is programmed."""
        self._cluster = cluster
        self._home = cluster.state / "gateway"
        self._home.mkdir()
        for folder in self.crds:
            cluster.kubectl("apply", "--server-side", "-f", str(folder))
        cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        self._apply(_namespace(NAMESPACE), self._class(), self._gateway())
        try:
            self._run()
            wait_for(f"{self.name} gateway", SECONDS, self._programmed, self.check)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End its processes; harmless when there are none."""
        while self._daemons:
            self._daemons.pop().stop()

    def check(self) -> None:
        """Raise if one of its processes has ended, with the end of its log."""
        for daemon in self._daemons:
            daemon.check()

    def freeze(self) -> None:
        """SIGSTOP to the controller: routes are no longer read, while Envoy goes on as it was told last."""
        os.kill(self._pid(), signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT: it reads what it has missed."""
        os.kill(self._pid(), signal.SIGCONT)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The controller stands still for as long as the context lasts."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def _run(self) -> None:
        """Start the controller, as the first daemon, and Envoy."""
        raise NotImplementedError

    def _pid(self) -> int:
        """The controller's."""
        return self._daemons[0].pid

    def _programmed(self) -> bool:
        found = self._cluster.kubectl("-n", NAMESPACE, "get", "gateway", GATEWAY, "-o", "json")
        conditions = json.loads(found).get("status", {}).get("conditions", [])
        return any(item["type"] == "Programmed" and item["status"] == "True" for item in conditions)

    def _daemon(self, name: str, *command: str | Path, env: Mapping[str, str] | None = None) -> None:
        log = self._cluster.state / f"log/{name}.log"
        environment = {**self._environment(), **(env or {})}
        self._daemons.append(Daemon(name, [*self._cluster.exec_prefix, *command], log, environment))

    def _do(self, *command: str | Path) -> None:
        """Run a command to its end."""
        result = subprocess.run(command, capture_output=True, text=True, env=self._environment(), check=False)
        if result.returncode:
            raise HarnessError(f"'{' '.join(map(str, command[:2]))}' failed: {result.stderr.strip()}")

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self._home)}

    def _apply(self, *objects: Mapping[str, Any]) -> None:
        items = {"apiVersion": "v1", "kind": "List", "items": objects}
        self._cluster.kubectl("apply", "-f", "-", input=json.dumps(items))

    def _class(self) -> dict[str, Any]:
        return _object("GatewayClass", {"name": self.name}, spec={"controllerName": self.controller})

    def _gateway(self) -> dict[str, Any]:
        allowed = {"namespaces": {"from": "All"}}
        listener = {"name": LISTENER, "protocol": "HTTP", "port": self.port, "allowedRoutes": allowed}
        spec = {"gatewayClassName": self.name, "listeners": [listener]}
        return _object("Gateway", {"name": GATEWAY, "namespace": NAMESPACE}, spec=spec)


# Envoy Gateway looks for its certificate in /certs when it reads Kubernetes. It gets a root of its own: all of
# the machine's and that folder. And a process namespace, so that its Envoy ends with it, and /dev/shm of its own.
OWN_ROOT = """set -e
root=$1 certs=$2; shift 2
mount -t tmpfs -o mode=755 own "$root"
mount --make-unbindable "$root"
for path in /*; do
  if [ -L "$path" ]; then cp -P "$path" "$root/"
  elif [ -d "$path" ]; then mkdir "$root$path"; mount --rbind "$path" "$root$path"
  fi
done
mkdir -p "$root/certs"
mount --bind "$certs" "$root/certs"
mount -t proc proc "$root/proc"
mount -t tmpfs own "$root/dev/shm"
exec chroot "$root" "$@"
"""


class EnvoyGateway(Gateway):
    """It reads Kubernetes, and runs Envoy as a process of this machine instead of in pods."""

    name = "envoy"
    controller = "gateway.envoyproxy.io/gatewayclass-controller"
    port = PORT
    namespace = "envoy-gateway-system"

    def __init__(self) -> None:
        super().__init__()
        self._program = gatewaybins.ensure_envoy_gateway()

    def _run(self) -> None:
        version, config = gatewaybins.ENVOY_VERSION, self._home / "envoy-gateway.json"
        config.write_text(json.dumps(self._config()))
        own = self._home / f"data/envoy-versions/{version}/bin"  # else it fetches one
        own.mkdir(parents=True)
        (own / "envoy").symlink_to(self.envoy)
        self._apply(_namespace(self.namespace), *self._secrets(self._certificates()), *self._presence())
        root = self._home / "root"
        root.mkdir()
        isolated: Command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", OWN_ROOT, "sh", root]
        server: Command = [self._program, "server", "--config-path", config]
        environment = {"ENVOY_VERSION": version, "KUBECONFIG": str(self._cluster.kubeconfig)}
        certificates = self._home / "config/certs/envoy-gateway"
        self._daemon("envoy-gateway", *isolated, certificates, *server, env=environment)

    def _pid(self) -> int:
        """The only child of `unshare`."""
        parent = self._daemons[0].pid
        (child,) = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return int(child)

    def _programmed(self) -> bool:
        """What the condition says holds without Envoy too."""
        connect = [*self._cluster.exec_prefix, sys.executable, "-c", CONNECT]
        return super()._programmed() and subprocess.run(connect, capture_output=True, check=False).returncode == 0

    def _config(self) -> dict[str, Any]:
        folders = {"configHome": "config", "dataHome": "data", "stateHome": "state", "runtimeDir": "run"}
        host = {key: str(self._home / folder) for key, folder in folders.items()}
        resource = {"type": "Kubernetes", "kubernetes": {"leaderElection": {"disable": True}}}
        custom = {"resource": resource, "infrastructure": {"type": "Host", "host": host}}
        return {
            "apiVersion": "gateway.envoyproxy.io/v1alpha1",
            "kind": "EnvoyGateway",
            "gateway": {"controllerName": self.controller},
            "provider": {"type": "Custom", "custom": custom},
        }

    def _certificates(self) -> Path:
        self._do(self._program, "certgen", "--local", "--config-home", self._home / "config")
        return self._home / "config/certs"

    def _secrets(self, folder: Path) -> list[dict[str, Any]]:
        """What its own chart's job makes in a cluster."""
        made = {"envoy-oidc-hmac": ("hmac-secret",), "envoy": ("ca.crt", "tls.crt", "tls.key")}
        return [
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": self.namespace},
                "data": {key: base64.b64encode((folder / name / key).read_bytes()).decode() for key in keys},
            }
            for name, keys in made.items()
        ]

    def _presence(self) -> list[dict[str, Any]]:
        """A Service and a Deployment in place of those that it makes for an Envoy in pods: from the Service's type it
        takes the Gateway's address, the node's, and from the Deployment that the Gateway is programmed."""
        owner = {f"gateway.envoyproxy.io/owning-gateway-{key}": self.parent[key] for key in ("namespace", "name")}
        metadata = {"name": "envoy", "namespace": self.namespace, "labels": owner}
        container = {"name": "pause", "image": nodeconfig.PAUSE}
        template = {"metadata": {"labels": {"app": "envoy"}}, "spec": {"containers": [container]}}
        deployment = {"selector": {"matchLabels": {"app": "envoy"}}, "template": template}
        service = {"type": "NodePort", "ports": [{"name": LISTENER, "port": PORT}]}
        return [
            {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": deployment},
        ]


class Contour(Gateway):
    """It tells an Envoy that we start beside it."""

    name = "contour"
    controller = "projectcontour.io/gateway-controller"
    port = PORT - 8000  # Contour adds 8000
    xds = ("--xds-address=127.0.0.1", "--xds-port=8101")

    def __init__(self) -> None:
        super().__init__()
        self._program = gatewaybins.ensure_contour()
        self.crds.append(gatewaybins.ensure_contour_crds())

    def _run(self) -> None:
        config, bootstrap = self._home / "contour.json", self._home / "envoy.json"
        config.write_text(json.dumps({"gateway": {"gatewayRef": {"namespace": NAMESPACE, "name": GATEWAY}}}))
        unused = ("tlsroutes", "grpcroutes", "tcproutes", "backendtlspolicies", "extensionservices")
        self._daemon(
            "contour", self._program, "serve", "--insecure", *self.xds,
            f"--kubeconfig={self._cluster.kubeconfig}", f"--config-path={config}", "--disable-leader-election",
            *(f"--disable-feature={kind}" for kind in unused), f"--ingress-status-address={nodeconfig.ADDRESS}",
            "--http-address=127.0.0.1", "--http-port=8102", "--health-address=127.0.0.1", "--health-port=8103",
            "--debug-http-address=127.0.0.1", "--debug-http-port=8104",
        )  # fmt: skip
        self._do(self._program, "bootstrap", *self.xds, f"--admin-address={self._home}/admin.sock", bootstrap)
        # Envoy asks for SIGTERM at the end of the thread that started it, which is this one.
        flags = ["--service-cluster", "contour", "--service-node", "envoy", "--log-level", "warn"]
        self._daemon("envoy", self.envoy, "-c", bootstrap, "--disable-hot-restart", "--concurrency", "2", *flags)


KINDS: Mapping[str, type[Gateway]] = {kind.name: kind for kind in (EnvoyGateway, Contour)}


def named(name: str) -> Gateway:
    """The implementation of a name, its programs fetched or built. HarnessError for a name that is none."""
    if name not in KINDS:
        raise HarnessError(f"no gateway '{name}': one of {', '.join(KINDS)}")
    say(f"The programs of the gateway '{name}' ...")
    return KINDS[name]()


def _object(kind: str, metadata: Mapping[str, str], **rest: Any) -> dict[str, Any]:
    return {"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "metadata": metadata, **rest}


def _namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
