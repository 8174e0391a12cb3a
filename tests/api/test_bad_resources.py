"""Each resource in bad/ breaks one rule; the API server, or the operator after it, names the field and what to do."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from harness.controlplane import ControlPlane
from harness.errors import HarnessError
from specfleet.api import validation

BAD = sorted((Path(__file__).parent / "bad").glob("*.yaml"))


@dataclass(frozen=True)
class Expected:
    field: str
    text: str
    by: str


def expected(path: Path) -> Expected:
    header = dict(line[2:].split(": ", 1) for line in path.read_text().splitlines()[:3])
    return Expected(header["field"], header["expect"], header["by"])


def test_there_are_bad_resources_for_both_answers() -> None:
    answers = [expected(path).by for path in BAD]
    assert len(BAD) >= 24
    assert set(answers) == {"apiserver", "operator"}


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_the_operator_names_the_field_whatever_the_cluster_let_pass(path: Path) -> None:
    problems = validation.parse(yaml.safe_load(path.read_text()))
    assert isinstance(problems, tuple)
    assert [problem.field for problem in problems] == [expected(path).field]
    line = str(problems[0])
    assert line.startswith(f"{expected(path).field}: ")
    assert "; " in line, "says what to do"
    assert "\n" not in line
    if expected(path).by == "operator":
        assert expected(path).text in line


@pytest.mark.apiserver
@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_the_api_server_refuses_what_the_schema_can_say(path: Path, crd_plane: ControlPlane) -> None:
    want = expected(path)
    if want.by == "operator":
        crd_plane.kubectl("create", "--dry-run=server", "-f", str(path))
        return
    with pytest.raises(HarnessError) as refusal:
        crd_plane.kubectl("create", "--dry-run=server", "-f", str(path))
    assert want.text.lower() in str(refusal.value).lower()
    assert _leaf(want.field) in str(refusal.value)


def _leaf(field: str) -> str:
    return field.rsplit(".", 1)[-1].split("[", 1)[0]
