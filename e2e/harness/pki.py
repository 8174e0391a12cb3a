"""The keys, certificates and kubeconfigs of one cluster, by the openssl command."""

import base64
import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.debian import need
from harness.errors import HarnessError

DAYS = "3650"
# An own configuration file: the machine's may add extensions, and a doubled one makes a certificate invalid.
CONFIG = "[req]\ndistinguished_name=dn\nprompt=no\n[dn]\n"


@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate of the cluster's CA: for a client, or (with `names`) for a server."""

    name: str
    subject: str
    names: tuple[str, ...] = ()  # subjectAltName entries such as IP:127.0.0.1


def apiserver(*addresses: str) -> Certificate:
    """The API server's certificate, for its addresses and its names inside the cluster."""
    service = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
    names = (*(f"IP:{a}" for a in addresses), *(f"DNS:{n}" for n in ("localhost", *service)))
    return Certificate("apiserver", "/CN=kube-apiserver", names)


ADMIN = Certificate("admin", "/O=system:masters/CN=admin")
CONTROLLER_MANAGER = Certificate("controller-manager", "/CN=system:kube-controller-manager")
SCHEDULER = Certificate("scheduler", "/CN=system:kube-scheduler")
PROXY = Certificate("proxy", "/CN=system:kube-proxy")
APISERVER_KUBELET = Certificate("apiserver-kubelet", "/O=system:masters/CN=kube-apiserver-kubelet-client")


def kubelet(node: str) -> Certificate:
    return Certificate("kubelet", f"/O=system:nodes/CN=system:node:{node}")


def kubelet_server(node: str, address: str) -> Certificate:
    return Certificate("kubelet-server", f"/O=system:nodes/CN=system:node:{node}", (f"IP:{address}", f"DNS:{node}"))


def write(folder: Path, url: str, certificates: Iterable[Certificate]) -> None:
    """Into `folder`: ca.*, sa.* (service account key), `<name>.crt/.key`, and for each client `<name>.kubeconfig`."""
    wanted = list(certificates)
    folder.mkdir(mode=0o700, parents=True)
    (folder / "openssl.cnf").write_text(CONFIG)
    _run(folder, [_ca(), ["genpkey", *_EC, "-out", "sa.key"]])
    _run(folder, [["pkey", "-in", "sa.key", "-pubout", "-out", "sa.pub"], *map(_signed, wanted)])
    for client in wanted:
        if not client.names:
            (folder / f"{client.name}.kubeconfig").write_text(_kubeconfig(folder, client.name, url))


_EC = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1")
_NEW = ("req", "-config", "openssl.cnf", "-x509", "-newkey", "ec", *_EC[2:], "-nodes", "-days", DAYS)


def _ca() -> list[str]:
    extensions = ("basicConstraints=critical,CA:true", "keyUsage=critical,keyCertSign,digitalSignature")
    return [*_NEW, "-subj", "/CN=kubernetes-ca", "-keyout", "ca.key", "-out", "ca.crt", *_addext(extensions)]


def _signed(certificate: Certificate) -> list[str]:
    usage = "serverAuth" if certificate.names else "clientAuth"
    extensions = ["basicConstraints=critical,CA:false", f"extendedKeyUsage={usage}"]
    if certificate.names:
        extensions.append("subjectAltName=" + ",".join(certificate.names))
    output = ["-keyout", f"{certificate.name}.key", "-out", f"{certificate.name}.crt"]
    return [*_NEW, "-CA", "ca.crt", "-CAkey", "ca.key", "-subj", certificate.subject, *output, *_addext(extensions)]


def _addext(extensions: Iterable[str]) -> list[str]:
    return [word for extension in extensions for word in ("-addext", extension)]


def _run(folder: Path, commands: list[list[str]]) -> None:
    """All at once: each is a few milliseconds of work and one process start."""
    openssl = need("openssl", "openssl")
    running = [
        subprocess.Popen([openssl, *c], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for c in commands
    ]
    for command, process in zip(commands, running, strict=True):
        _, errors = process.communicate()
        if process.returncode != 0:
            raise HarnessError(f"openssl {command[0]} failed (OpenSSL 3 is needed): {errors.strip()}")


def _kubeconfig(folder: Path, name: str, url: str) -> str:
    """JSON, which is YAML too; the data inline, so that the file can be copied anywhere."""

    def data(file: str) -> str:
        return base64.b64encode((folder / file).read_bytes()).decode()

    user = {"client-certificate-data": data(f"{name}.crt"), "client-key-data": data(f"{name}.key")}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url, "certificate-authority-data": data("ca.crt")}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": name}}],
        "current-context": "c",
    }
    return json.dumps(config, indent=1)
