"""Runs the real vLLM for CPU on this machine: one server at a time, and scripts that ask its code."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from harness import layers, vllm_env
from harness.errors import HarnessError
from harness.process import Daemon, free_ports, wait_for

MODELS = vllm_env.HERE / "models"
START_SECONDS = 300  # 30 on an idle machine, five times that on a busy one
# As much as a test needs: one GiB of cache, one thread, no word to the outside.
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


def python() -> str:
    """A Python of this machine that can load the packages: the same minor version as the image's."""
    with layers.unpacked_python() as base:
        name = layers.program(base).name
    if name == f"python{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    if path := shutil.which(name):
        return path
    raise HarnessError(f"no {name} on PATH: the packages of vLLM are for it")


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process that is to find vLLM."""
    return {**os.environ, **vllm_env.environment(vllm_env.ensure()), **ENVIRONMENT, **(more or {})}


def ask(script: str, *arguments: str, input: str) -> str:
    """What a script of e2e/vllm prints, run where vLLM can be imported."""
    command = [python(), str(vllm_env.HERE / script), *arguments]
    env = environment({"VLLM_LOGGING_LEVEL": "ERROR"})
    result = subprocess.run(command, input=input, capture_output=True, text=True, env=env, check=False)
    if result.returncode != 0:
        raise HarnessError(f"{script}: {result.stderr.strip()[-2000:]}")
    return result.stdout


@contextmanager
def serve(*arguments: str) -> Iterator[str]:
    """The URL of a `vllm serve` of the tiny target with these arguments, ready; it ends with the context."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [
        python(), str(vllm_env.ensure() / "usr/local/bin/vllm"), "serve", str(MODELS / "tiny-target"),
        "--served-model-name", "tiny", "--enforce-eager", "--host", "127.0.0.1", "--port", str(port), *arguments,
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon("vllm", command, Path(folder) / "vllm.log", environment())
        try:
            wait_until_healthy(url, START_SECONDS, daemon.check)
            yield url
        finally:
            with suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGKILL)  # its engine and worker too
            daemon.stop()


def wait_until_healthy(url: str, seconds: float, check: Callable[[], None]) -> None:
    """Until the server at `url` can be asked; `check` raises when it never will."""

    def healthy() -> bool:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    wait_for(url, seconds, healthy, check)
