"""What is wrong with resources in files, without a cluster: one line per problem. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from specfleet.api import names
from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.api.validation import findings, not_implemented, parse
from specfleet.cli.around import Around, placed
from specfleet.cli.pages import BadInput
from specfleet.cli.unknown import unknown_fields
from specfleet.cli.words import count, harmless
from specfleet.rollout.margins import remarks, widened

Severity = Literal["error", "finding", "note", "not-implemented"]


@dataclass(frozen=True, slots=True)
class Line:
    """One problem. `where` is `file:line`, the first of the document; `says` begins with the field. A note asks for
    nothing, and is no error under `strict` either."""

    where: str
    name: str
    severity: Severity
    says: str

    def __str__(self) -> str:
        parts = (self.where, self.name, f"{self.severity}:", self.says)
        return harmless(" ".join(" ".join(part.split()) for part in parts if part))


@dataclass(frozen=True, slots=True)
class Linted:
    """What was found in all files: the problems in order, how many resources were ours and how many were not."""

    lines: tuple[Line, ...]
    ours: int
    others: int

    def summary(self) -> str:
        """All of it in one line."""
        kinds = ", ".join(
            f"{number} {severity}" if severity == "not-implemented" else count(number, severity)
            for severity in ("error", "finding", "note", "not-implemented")
            if (number := self.number(severity))
        )
        others = f", {count(self.others, 'other object')} ignored" if self.others else ""
        return f"{count(self.ours, names.KIND)}{others}: {kinds or 'nothing to say'}"

    def number(self, severity: str) -> int:
        """How many problems are of this severity."""
        return sum(line.severity == severity for line in self.lines)


class _Loader(yaml.SafeLoader):
    """YAML as kubectl reads it: a date is a string, and a key is written once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        if repeated := next((key for key in keys if keys.count(key) > 1), None):
            raise yaml.constructor.ConstructorError(None, None, f"key {repeated!r} is there twice", node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [item for item in resolvers if item[0] != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def lint(files: Iterable[tuple[str, str | BadInput]], strict: bool = False) -> Linted:
    """Lint (name, text) pairs; `strict` makes findings errors, and files without a fleet one. Raises nothing."""
    found = [item for file, text in files for item in _resources(file, text)]
    around, others = Around(), 0
    for where, resource in found:
        if not isinstance(resource, Line):
            others += not (isinstance(resource, Mapping) and around.take(where, resource, _is_ours(resource)))
    lines: list[Line] = []
    for where, resource in found:
        if isinstance(resource, Line):
            lines.append(resource)
        elif _is_ours(resource):
            lines += _problems(where, resource, strict, around)
    ours = sum(not isinstance(resource, Line) and _is_ours(resource) for _, resource in found)
    if strict and not ours:
        lines.append(Line("", "", "error", f"no {names.KIND} is in these files: look at their kind and apiVersion"))
    return Linted(tuple(lines), ours, others)


def _resources(file: str, text: str | BadInput) -> Iterator[tuple[str, Any]]:
    """(where, resource) of each document and of each item of a List; a Line where the rest cannot be read."""
    if isinstance(text, BadInput):
        yield file, Line(file, "", "error", str(text))
        return
    where = f"{file}:1"
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            assert node is not None, "check_node has said so"
            where = f"{file}:{node.start_mark.line + 1}"
            for resource in _items(loader.construct_document(node)):
                yield where, resource
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark else where
        yield where, Line(where, "", "error", f"not YAML: {' '.join(str(error).split())}")
    except (ValueError, RecursionError):
        yield where, Line(where, "", "error", "not YAML: a value that cannot be read, or nested too deeply")


def _items(document: Any) -> list[Any]:
    if document is None:
        return []
    if isinstance(document, Mapping) and document.get("kind") == "List" and isinstance(document.get("items"), list):
        return list(document["items"])
    return [document]


def _is_ours(resource: Any) -> bool:
    """Of our kind or of our group: one of the two may be misspelt."""
    if not isinstance(resource, Mapping):
        return False
    return resource.get("kind") == names.KIND or str(resource.get("apiVersion")).partition("/")[0] == names.GROUP


def _problems(where: str, resource: Mapping[str, Any], strict: bool, around: Around) -> Iterator[Line]:
    metadata = resource.get("metadata")
    name = str(metadata.get("name", "")) if isinstance(metadata, Mapping) else ""
    if (version := resource.get("apiVersion")) != names.API_VERSION:
        yield Line(where, name, "error", f"apiVersion: {version!r}: must be {names.API_VERSION}; correct it")
    if (kind := resource.get("kind")) != names.KIND:
        yield Line(where, name, "error", f"kind: {kind!r}: must be {names.KIND}; correct it")
    yield from (Line(where, name, "error", said) for said in unknown_fields(resource.get("spec")))
    parsed = parse(resource)
    if not isinstance(parsed, SpecDecodeDeploymentSpec):
        yield from (Line(where, name, "error", str(problem)) for problem in parsed)
        return
    sdd = placed(resource)
    yield from (Line(where, name, "error", said) for said in around.errors(sdd, parsed.traffic))
    advice: Severity = "error" if strict else "finding"
    advised = (*findings(parsed), *remarks(parsed), *around.findings(sdd, parsed.traffic))
    yield from (Line(where, name, advice, said) for said in advised)
    yield from (Line(where, name, "note", said) for said in widened(parsed))
    for field in not_implemented(parsed):
        yield Line(where, name, "not-implemented", f"{field}: accepted, but without effect in this version")
