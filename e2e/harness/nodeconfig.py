"""What one cluster is made of, and the configuration files of its daemons."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

NODE = "node1"
ADDRESS = "10.99.0.2"  # the node's, inside the cluster's own network namespace: the same in every cluster
SERVICES = "10.96.0.0/16"
FIRST_SERVICE = "10.96.0.1"
PODS = "10.98.0.0/24"
URL = f"https://{ADDRESS}:6443"
PAUSE = "specfleet.dev/pause:1"
# The labels that AMD's node labeller puts on a machine with MI300X.
NODE_LABELS = {
    "amd.com/gpu.device-id": "74a1",
    "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM",
    "amd.com/gpu.vram": "192G",
    "amd.com/gpu.family": "AI",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """All that the first process inside the namespaces has to know."""

    name: str  # of the network namespace and the cgroup
    state: Path  # everything that the cluster writes
    kube: Path  # folder with localkube and its names
    node: Path  # folder with bin/, cni/ and lib/
    images: tuple[Path, ...]
    gpus: int
    snapshotter: str
    audit: bool = False  # whether the API server writes `audit_log`

    @property
    def audit_log(self) -> Path:
        """One JSON line for each request that the API server has answered."""
        return self.state / "audit.jsonl"

    @property
    def keys(self) -> Path:
        return self.state / "pki"

    @property
    def containerd_socket(self) -> Path:
        return self.state / "containerd.sock"

    @property
    def unhealthy(self) -> Path:
        """Ids of GPUs (gpu-0 ...) that are to be unhealthy, one a line."""
        return self.state / "unhealthy-gpus"

    def save(self) -> None:
        values = {name: getattr(self, name) for name in self.__slots__}
        (self.state / "settings.json").write_text(json.dumps(values, default=str, indent=1))

    @classmethod
    def load(cls, state: Path) -> Self:
        values: dict[str, Any] = json.loads((state / "settings.json").read_text())
        paths = {name: Path(values[name]) for name in ("state", "kube", "node")}
        return cls(**{**values, **paths, "images": tuple(map(Path, values["images"]))})


def write(settings: Settings) -> None:
    """The files under `etc/` of the state folder. JSON is YAML too."""
    folder = settings.state / "etc"
    (folder / "cni").mkdir(parents=True)
    (folder / "containerd.toml").write_text(_containerd(settings))
    (folder / "cni/10-pods.conflist").write_text(json.dumps(_pod_network()))
    (folder / "kubelet.json").write_text(json.dumps(_kubelet(settings)))
    (folder / "proxy.json").write_text(json.dumps(_proxy(settings)))


def _containerd(settings: Settings) -> str:
    """Version 2 of the format, which containerd 1.6, 1.7 and 2 read."""
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{settings.containerd_socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true         # root of a container may lack CAP_SYS_RESOURCE
  netns_mounts_under_state_dir = true   # else the pods' network namespaces would be mounted in the host's /run
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "{settings.snapshotter}"
  default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  BinaryName = "{settings.node}/bin/runc"
  SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{settings.node}/cni"
  conf_dir = "{settings.state}/etc/cni"
"""


def _pod_network() -> dict[str, Any]:
    """Point to point links: they need neither a bridge nor iptables, and a pod reaches itself through a service."""
    ipam = {
        "type": "host-local",
        "dataDir": "/run/cni-ipam",
        "ranges": [[{"subnet": PODS}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{"type": "ptp", "ipMasq": False, "mtu": 1500, "ipam": ipam}],
    }


def _kubelet(settings: Settings) -> dict[str, Any]:
    keys = settings.keys
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{settings.name}",
        "containerRuntimeEndpoint": f"unix://{settings.containerd_socket}",
        "address": ADDRESS,
        "healthzPort": 0,
        "tlsCertFile": f"{keys}/kubelet-server.crt",
        "tlsPrivateKeyFile": f"{keys}/kubelet-server.key",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{keys}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "resolvConf": "",
        "failSwapOn": False,
        "enforceNodeAllocatable": ["pods"],
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageMinimumGCAge": "24h",
        "kubeAPIQPS": 500,
        "kubeAPIBurst": 1000,
        "nodeStatusUpdateFrequency": "5s",
        # Kubelet sleeps through the back-off unless it syncs more often, and then never shows CrashLoopBackOff.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "20s"},
        "syncFrequency": "2s",
    }


def _proxy(settings: Settings) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": f"{settings.keys}/proxy.kubeconfig"},
        "clusterCIDR": PODS,
        "hostnameOverride": NODE,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "nftables": {"minSyncPeriod": "100ms"},  # the default lets the first request after Ready be refused
        # The connection table's size belongs to the machine: leave it.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
