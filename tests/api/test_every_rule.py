"""Every rule of the language refuses a resource in bad/: a rule that is added without one fails here.

Rules are found, not listed: CEL rules and unique lists in the CustomResourceDefinition, the operator's own rules in the
source of its `api`, and what pydantic can say in the table of its translations.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from harness.controlplane import ControlPlane
from kube_http import KubeHttp
from specfleet.api import engine_args, names, validation
from specfleet.api.problem import Problem
from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec

HERE = Path(__file__).parent
BAD = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((HERE / "bad").glob("*.yaml"))}
CRD = yaml.safe_load((HERE.parents[1] / "crds" / "specfleet.dev_specdecodedeployments.yaml").read_text())
SCHEMA = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
API = Path(validation.__file__).parent
PATH = f"/apis/{names.GROUP}/{names.VERSION}/namespaces/default/{names.PLURAL}"
UNWRITABLE = {"string_unicode"}  # half a surrogate pair: no JSON or YAML carries it to an API server


# The API server's rules


@dataclass(frozen=True)
class Rule:
    """What a refusal's cause must be: its field, with [] for any index, and how its message ends."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"

    def refuses(self, cause: dict[str, Any]) -> bool:
        field = re.sub(r"\[[^]]*\]", "[]", cause["field"])
        within = field == self.field or (self.message == DUPLICATE and field == f"{self.field}[]")
        return within and self.message in cause["message"]


DUPLICATE = "Duplicate value"


def rules(schema: dict[str, Any], path: str = "") -> Iterator[Rule]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield Rule((path + rule.get("fieldPath", "")).lstrip(".") or "<nil>", rule["message"])
    if schema.get("x-kubernetes-list-type") in ("set", "map"):
        yield Rule(path.lstrip("."), DUPLICATE)
    for name, child in schema.get("properties", {}).items():
        yield from rules(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from rules(schema[key], f"{path}[]")


RULES = [*rules({**SCHEMA, "properties": {"spec": SCHEMA["properties"]["spec"]}})]


@pytest.fixture(scope="module")
def refusals(crd_plane: ControlPlane) -> dict[str, list[dict[str, Any]]]:
    with KubeHttp(crd_plane) as http:
        return {stem: http.refusal(PATH, raw) for stem, raw in BAD.items()}


def test_the_rules_of_the_schema_are_found() -> None:
    text = (HERE.parents[1] / "crds" / "specfleet.dev_specdecodedeployments.yaml").read_text()
    messages = [rule for rule in RULES if rule.message != DUPLICATE]
    assert len(messages) == len(re.findall(r'^ *(?:- )?"?rule"?: ', text, re.M)) > 25


@pytest.mark.apiserver
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_every_rule_of_the_schema_refuses_a_bad_resource(rule: Rule, refusals: dict[str, list[dict[str, Any]]]) -> None:
    by = [stem for stem, causes in refusals.items() if any(map(rule.refuses, causes))]
    assert by, "add a resource to tests/api/bad that breaks it"
    alone = [stem for stem in by if len(refusals[stem]) == 1]
    assert alone, f"{by} break other rules too: without this one they would be refused all the same"


# The operator's own rules


@dataclass(frozen=True)
class Place:
    """A call in the source that makes a problem, or that hands on those of a function that does."""

    file: str
    first: int
    last: int
    text: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.first} {self.text}"


def places() -> Iterator[Place]:
    trees = {path: ast.parse(path.read_text()) for path in sorted(API.glob("*.py"))}
    makers = {path.stem: set(_makers(tree)) for path, tree in trees.items()}
    for path, tree in trees.items():
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if _makes(call.func, path.stem, makers):
                yield Place(str(path), call.lineno, call.end_lineno or call.lineno, ast.unparse(call)[:70])


def _makers(tree: ast.Module) -> Iterator[str]:
    yield "Problem"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.returns and "Problem" in ast.unparse(node.returns):
            yield node.name


def _makes(function: ast.expr, module: str, makers: dict[str, set[str]]) -> bool:
    if isinstance(function, ast.Name):
        return function.id in makers[module]
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return function.attr in makers.get(function.value.id, ())
    return False


PLACES = [*places()]


@pytest.fixture(scope="module")
def reached() -> dict[str, set[tuple[str, int]]]:
    """For each bad resource the lines of the source that were running when one of its problems was made."""
    found: dict[str, set[tuple[str, int]]] = {}
    made = Problem.__init__
    with pytest.MonkeyPatch.context() as patch:
        for stem, raw in BAD.items():
            lines = found.setdefault(stem, set())

            def record(self: Problem, *values: Any, lines: set[tuple[str, int]] = lines) -> None:
                lines.update(_running())
                made(self, *values)

            patch.setattr(Problem, "__init__", record)
            validation.parse(raw)
    return found


def _running() -> Iterator[tuple[str, int]]:
    frame = sys._getframe(1)
    while frame.f_back:
        frame = frame.f_back
        if Path(frame.f_code.co_filename).parent == API:
            yield frame.f_code.co_filename, frame.f_lineno


def test_the_operators_rules_are_found() -> None:
    assert len(PLACES) > 45
    assert {Path(place.file).stem for place in PLACES} == {"cross_field", "engine_args", "validation"}


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_every_rule_of_the_operator_refuses_a_bad_resource(
    place: Place, reached: dict[str, set[tuple[str, int]]]
) -> None:
    lines = {(place.file, line) for line in range(place.first, place.last + 1)}
    assert [stem for stem, seen in reached.items() if seen & lines], "add a resource to tests/api/bad that breaks it"


def test_no_model_refuses_in_another_way() -> None:
    """A validator that raises would be a rule that neither list above holds."""
    raising = {
        path.stem
        for path in API.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Raise)
    }
    assert raising <= {"structural"}, "what makes the CustomResourceDefinition, not what reads resources"


@pytest.mark.parametrize("refusal", engine_args.REFUSALS, ids=lambda refusal: refusal.flags[0])
def test_every_refused_argument_stands_in_a_bad_resource(refusal: engine_args.Refusal) -> None:
    alone = [found[0] for raw in BAD.values() if isinstance(found := validation.parse(raw), tuple) and len(found) == 1]
    mine = [problem for problem in alone if problem.message == refusal.todo]
    assert [problem for problem in mine if refusal.matches(engine_args.parse((problem.value,))[0].name)]


@pytest.mark.parametrize("kind", sorted({*validation._TODO} - UNWRITABLE))
def test_every_kind_of_malformed_field_stands_in_a_bad_resource(kind: str) -> None:
    assert [stem for stem, raw in BAD.items() if kind in _kinds(raw)]


def test_no_bad_resource_is_answered_in_words_that_are_not_ours() -> None:
    assert {kind for raw in BAD.values() for kind in _kinds(raw)} <= {*validation._TODO}


def _kinds(raw: dict[str, Any]) -> set[str]:
    if not isinstance(raw.get("spec"), dict):
        return set()
    try:
        SpecDecodeDeploymentSpec.model_validate(raw["spec"])
    except ValidationError as error:
        return {detail["type"] for detail in error.errors()}
    return set()
