"""The documented reasons are those that the operator gives."""

from pathlib import Path

import pytest

from specfleet.api.reasons import Reason, named
from specfleet.judgement.guards import _REASONS, Guard

SOURCE = Path(__file__).parents[2] / "operator" / "specfleet"
CODE = "\n".join(path.read_text() for path in SOURCE.rglob("*.py") if path.name != "reasons.py")


@pytest.mark.parametrize("reason", Reason)
def test_every_documented_reason_is_given_somewhere(reason: Reason) -> None:
    assert f"Reason.{reason.name}" in CODE or f'"{reason}"' in CODE


@pytest.mark.parametrize("guard", Guard)
def test_every_guard_has_a_documented_reason(guard: Guard) -> None:
    assert named(_REASONS[guard]) is not None
