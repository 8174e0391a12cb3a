"""An operator that waits for the Lease ends when it is asked to, as it would as the first process of a container."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

NOWHERE = "https://127.0.0.1:1"  # nobody listens: the Lease is out of reach


def test_a_waiting_operator_ends_on_sigterm_by_itself(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(config()))
    command = [sys.executable, "-m", "specfleet.controller.app", "--listen=127.0.0.1:0"]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    with subprocess.Popen(command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, env=environment, text=True) as one:
        try:
            assert one.stdout is not None
            assert any("lease" in line for line in one.stdout), "it waits"
            one.send_signal(signal.SIGTERM)
            assert one.wait(20) == 0, "not by the signal, which the first process of a container would not get"
        finally:
            one.kill()


def config() -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": NOWHERE}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
