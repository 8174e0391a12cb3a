"""Starts the simulated vLLM server as a process on a free port of the loopback."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

VLLM = Path(__file__).parents[2] / "images" / "vllm-sim" / "vllm"
SPECULATION = '{"method": "eagle3", "model": "drafter", "num_speculative_tokens": 3}'


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def vllm(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """`vllm` with these arguments and environment added; the output is kept for the test."""
    command = [sys.executable, str(VLLM), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env={**os.environ, **environment}, stdout=pipe, stderr=pipe, text=True)


class SimServer:
    """One running server; leave the context to have it gone."""

    def __init__(self, *flags: str, model: str = "target", speculation: str | None = SPECULATION, **environment: str):
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        config = ["--speculative-config", speculation] if speculation else []
        address = ["--host", "127.0.0.1", "--port", str(port)]
        environment = {"VLLM_SIM_NAME": "pod-a", "VLLM_SIM_SEED": "1", **environment}
        self.process = vllm("serve", model, *address, *config, *flags, **environment)
        self._until_ready()

    def __enter__(self) -> "SimServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def _until_ready(self) -> None:
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                self.get("/health")
                return
            except OSError:
                time.sleep(0.02)
        self.process.kill()
        raise AssertionError(f"the server did not start: {self.process.communicate()[1]}")

    def open(self, path: str, body: Any = None, method: str | None = None, **headers: str) -> Any:
        """The open answer; urllib's HTTPError for other statuses than 2xx."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **headers}
        return urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers, method=method), timeout=20)

    def get(self, path: str) -> str:
        """The body of a GET."""
        with self.open(path) as answer:
            return str(answer.read().decode())

    def complete(self, prompt: str, **given: Any) -> Any:
        """The JSON answer of a greedy completion."""
        with self.open("/v1/completions", {"prompt": prompt, "temperature": 0, **given}) as answer:
            return json.loads(answer.read())

    def text(self, prompt: str, **given: Any) -> str:
        """The text of a greedy completion."""
        return str(self.complete(prompt, **given)["choices"][0]["text"])

    def status(self, path: str, body: Any = None, **headers: str) -> int:
        """The status of an answer."""
        try:
            with self.open(path, body, **headers) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def turn(self, **dials: Any) -> None:
        """Change dials while the server runs."""
        self.open("/sim", dials, "PUT").close()

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        self.process.send_signal(signal.SIGTERM)


def events(answer: Any) -> list[dict[str, Any] | None]:
    """The events still to come of a stream; None stands for [DONE]."""
    data = [line[6:].strip() for line in answer if line.startswith(b"data: ")]
    return [None if event == b"[DONE]" else json.loads(event) for event in data]
