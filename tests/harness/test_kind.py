"""kind cannot be run where the tests run; what can be said without it."""

import pytest

from harness.errors import HarnessError
from harness.kind import KindCluster


def test_without_docker_it_says_what_it_needs(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HarnessError, match="CLUSTER=kind needs docker on PATH"):
        KindCluster().start()
