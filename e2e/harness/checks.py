"""What the end-to-end scenarios rely on, tried on a running cluster: services, GPUs, signals, limits, logs, exec."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from harness import images
from harness.cluster import Cluster
from harness.errors import HarnessError

SERVER = """
import http.server, os, signal, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = os.environ["HOSTNAME"].encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
def terminate(*_):
    print("SIGTERM received", flush=True); time.sleep(1); print("drained", flush=True); sys.exit(0)
signal.signal(signal.SIGTERM, terminate)
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Handler).serve_forever()
"""
DEVICES = """
import os, time
print(os.environ["FAKE_GPU_IDS"], *sorted(os.listdir("/dev/dri")), flush=True)
open("/dev/kfd", "r+b")
time.sleep(999)
"""


def run_all(cluster: Cluster) -> int:
    """Print a line for each check; the number of failed ones."""
    cluster.kubectl("apply", "-f", "-", input=json.dumps(_list(_objects())))
    checks = (
        deployment_available,
        cluster_ip_reaches_both_pods,
        gpu_pod_sees_its_devices,
        too_many_gpus_stay_pending,
        unhealthy_gpu_is_not_allocatable,
        termination_drains,
        memory_limit_kills,
        crash_loop_shows,
        logs_of_a_container,
        exec_in_a_container,
    )
    return sum(not _passes(check, cluster) for check in checks)


def _passes(check: Callable[[Cluster], str], cluster: Cluster) -> bool:
    start = time.monotonic()
    try:
        result, passed = check(cluster), True
    except (HarnessError, AssertionError) as error:
        result, passed = str(error), False
    what = check.__name__.replace("_", " ")
    print(f"{'ok  ' if passed else 'FAIL'} {time.monotonic() - start:5.1f} s  {what}: {result}", flush=True)
    return passed


def deployment_available(cluster: Cluster) -> str:
    return cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s").strip().splitlines()[-1]


def cluster_ip_reaches_both_pods(cluster: Cluster) -> str:
    address = _get(cluster, "service", "web")["spec"]["clusterIP"]
    fetch = f"import urllib.request as u; print(u.urlopen('http://{address}/', timeout=3).read().decode())"
    end = time.monotonic() + 10
    answers: set[str] = set()
    while len(answers) < 2 and time.monotonic() < end:
        command = [*cluster.exec_prefix, sys.executable, "-c", fetch]
        answers |= set(subprocess.run(command, capture_output=True, text=True, check=False).stdout.split())
    assert len(answers) == 2, answers
    return f"{address}: {', '.join(sorted(answers))}"


def gpu_pod_sees_its_devices(cluster: Cluster) -> str:
    cluster.kubectl("wait", "--for=condition=Ready", "pod/gpu2", "--timeout=30s")
    return _until(lambda: cluster.kubectl("logs", "gpu2").strip(), lambda text: "renderD" in text)


def too_many_gpus_stay_pending(cluster: Cluster) -> str:
    status = _get(cluster, "pod", "gpu9")["status"]
    message = str(status["conditions"][0]["message"])
    assert status["phase"] == "Pending"
    assert "Insufficient amd.com/gpu" in message
    return message


def unhealthy_gpu_is_not_allocatable(cluster: Cluster) -> str:
    def allocatable() -> str:
        return str(_get(cluster, "node", cluster.node)["status"]["allocatable"]["amd.com/gpu"])

    before = allocatable()
    cluster.settings.unhealthy.write_text("gpu-7\n")
    after = _until(allocatable, lambda count: int(count) == int(before) - 1)
    cluster.settings.unhealthy.unlink()
    _until(allocatable, lambda count: count == before)
    return f"{before} -> {after} -> {before}"


def termination_drains(cluster: Cluster) -> str:
    pod = cluster.kubectl("get", "pods", "-l", "app=web", "-o", "name").split()[0]
    kubectl = [*cluster.exec_prefix, f"{cluster.settings.kube}/kubectl", f"--kubeconfig={cluster.kubeconfig}"]
    with subprocess.Popen([*kubectl, "logs", "-f", pod], stdout=subprocess.PIPE, text=True) as following:
        cluster.kubectl("delete", pod)
        output, _ = following.communicate(timeout=30)
    assert "drained" in output, output
    return ", ".join(output.splitlines()[-2:])


def memory_limit_kills(cluster: Cluster) -> str:
    def reason() -> str:
        statuses = _get(cluster, "pod", "oom")["status"].get("containerStatuses", [{}])
        return str(statuses[0].get("state", {}).get("terminated", {}).get("reason"))

    return _until(reason, lambda text: text == "OOMKilled")


def crash_loop_shows(cluster: Cluster) -> str:
    def reason() -> str:
        statuses = _get(cluster, "pod", "crash")["status"].get("containerStatuses", [{}])
        return str(statuses[0].get("state", {}).get("waiting", {}).get("reason"))

    return _until(reason, lambda text: text == "CrashLoopBackOff")


def logs_of_a_container(cluster: Cluster) -> str:
    text = cluster.kubectl("logs", "crash").strip()
    assert text == "boom", text
    return text


def exec_in_a_container(cluster: Cluster) -> str:
    name = cluster.kubectl("exec", "gpu2", "--", "hostname").strip()
    assert name == "gpu2", name
    return name


def _until(value: Callable[[], str], good: Callable[[str], bool], seconds: float = 30) -> str:
    end = time.monotonic() + seconds
    while not good(seen := value()):
        assert time.monotonic() < end, f"still {seen!r} after {seconds:.0f} s"
        time.sleep(0.2)
    return seen


def _get(cluster: Cluster, kind: str, name: str) -> dict[str, Any]:
    return json.loads(cluster.kubectl("get", kind, name, "-o", "json"))  # type: ignore[no-any-return]


def _objects() -> list[dict[str, Any]]:
    labels = {"app": "web"}
    server = _container(SERVER)
    server["readinessProbe"] = {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [server], "terminationGracePeriodSeconds": 5}}
    deployment = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    service = {"selector": labels, "ports": [{"port": 80, "targetPort": 8000}]}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": deployment},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": service},
        _pod("gpu2", _container(DEVICES, {"amd.com/gpu": 2})),
        _pod("gpu9", _container("pass", {"amd.com/gpu": 9})),
        _pod("crash", _container("import sys; print('boom'); sys.exit(7)")),
        _pod("oom", _container("print(len(bytearray(200 << 20)))", {"memory": "64Mi"}), restartPolicy="Never"),
    ]


def _list(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _pod(name: str, container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    whole = {"containers": [container], "terminationGracePeriodSeconds": 1, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole}


def _container(script: str, limits: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "name": "c",
        "image": images.reference("python"),
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", script],
        "resources": {"limits": limits or {}},
    }
