"""helm, the chart rendered with each file of values/, and a real API server."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.node import ensure_helm

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "specfleet"
Helm = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    program = ensure_helm() / "helm"
    home = tmp_path_factory.mktemp("helm")
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [str(program), *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    return run


@pytest.fixture(scope="session")
def rendered(helm: Helm) -> Callable[..., list[dict[str, Any]]]:
    """The objects of the chart with values/<name>.yaml, in namespace `specfleet`."""

    def render(values: str, release: str = "fleet") -> list[dict[str, Any]]:
        file = Path(__file__).parent / "values" / f"{values}.yaml"
        result = helm("template", release, str(CHART), "--namespace", "specfleet", "--values", str(file))
        assert result.returncode == 0, result.stderr
        return [item for item in yaml.safe_load_all(result.stdout) if item]

    return render
