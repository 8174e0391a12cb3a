"""The examples, and golden manifests that `UPDATE_GOLDEN=1 pytest tests/resources` writes anew."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec

HERE = Path(__file__).parent
EXAMPLES = sorted(path.stem for path in (HERE / "examples").glob("*.yaml"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "example" in metafunc.fixturenames:
        metafunc.parametrize("example", EXAMPLES)


@pytest.fixture
def sdd() -> dict[str, Any]:
    return {"metadata": {"name": "llama", "namespace": "chat", "uid": "5f0c6f5e"}}


@pytest.fixture
def load() -> Callable[[str], SpecDecodeDeploymentSpec]:
    def _load(name: str) -> SpecDecodeDeploymentSpec:
        return SpecDecodeDeploymentSpec.model_validate(yaml.safe_load((HERE / "examples" / f"{name}.yaml").read_text()))

    return _load


@pytest.fixture
def golden() -> Callable[[str, list[dict[str, Any]]], None]:
    def _golden(name: str, manifests: list[dict[str, Any]]) -> None:
        path = HERE / "golden" / f"{name}.yaml"
        text = yaml.dump_all(manifests, Dumper=_NoAliases, sort_keys=False, width=120)
        if os.environ.get("UPDATE_GOLDEN"):
            path.write_text(text)
        assert text == path.read_text()

    return _golden


class _NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True
