"""The resource can say every server of vLLM's post of 23 August 2026 on AMD GPUs, and adds only what its page says.

`amd-servers.json` holds those servers: environment, arguments and speculative config as they were measured.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from specfleet.api import validation
from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.resources.revision import render

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
SERVERS = json.loads((HERE / "amd-servers.json").read_text())
FOLDER = DOCS / "examples/amd"
SUFFIX = {
    "Baseline": "off",
    "Native MTP": "mtp",
    "Gemma 4 MTP": "mtp",
    "EAGLE-3": "eagle3",
    "DFlash": "dflash",
    "DSpark": "dspark",
}
ROW = re.compile(r"^\| (argument|environment|volume) \| `([^`]+)`(?: at `([^`]+)`)? \| (.+?) \|", re.MULTILINE)

Added = set[tuple[str, str]]


def _name(server: dict[str, Any]) -> str:
    model = server["target"].rpartition("/")[2].lower().replace(".", "-")
    return f"{model}-{SUFFIX[server['arm']]}"


@pytest.fixture(params=SERVERS, ids=_name)
def server(request: pytest.FixtureRequest) -> dict[str, Any]:
    return request.param


@pytest.fixture
def raw(server: dict[str, Any]) -> dict[str, Any]:
    return yaml.safe_load((FOLDER / f"{_name(server)}.yaml").read_text())


@pytest.fixture
def container(raw: dict[str, Any]) -> dict[str, Any]:
    spec = validation.parse(raw)
    assert isinstance(spec, SpecDecodeDeploymentSpec)
    return _container(raw["metadata"]["name"], spec)


def _container(name: str, spec: SpecDecodeDeploymentSpec) -> dict[str, Any]:
    (container,) = render(name, f"{name}-2345678b", spec)["template"]["spec"]["containers"]
    return container


def _flags(arguments: Iterable[str]) -> dict[str, str | None]:
    """Value by flag of `--flag=value`, `--flag value` and `--flag`; none may come twice."""
    parsed: dict[str, str | None] = {}
    last = ""
    for argument in arguments:
        if argument.startswith("-"):
            last, equals, value = argument.partition("=")
            assert last not in parsed
            parsed[last] = value if equals else None
        else:
            assert parsed[last] is None
            parsed[last] = argument
    return parsed


def _page(when: str | None = None) -> Added:
    """Rows of the page: (kind, name), all or those with this condition."""
    rows = ROW.findall((DOCS / "what-the-operator-adds.md").read_text())
    return {(kind, path or name) for kind, name, path, condition in rows if when in (None, condition)}


def _all(container: dict[str, Any]) -> Added:
    """Everything that a container has: flags, variables, and volumes by where they are mounted."""
    return {
        *(("argument", flag) for flag in _flags(container["args"])),
        *(("environment", entry["name"]) for entry in container["env"]),
        *(("volume", mount["mountPath"]) for mount in container["volumeMounts"]),
    }


def test_there_is_one_resource_for_each_server() -> None:
    assert len(SERVERS) == 22
    assert {path.stem for path in FOLDER.glob("*.yaml")} == {_name(server) for server in SERVERS}


def test_the_resource_is_called_like_its_file_and_has_no_unknown_field(server, raw) -> None:
    assert raw["metadata"]["name"] == _name(server)
    assert SpecDecodeDeploymentSpec.model_validate(raw["spec"]).written() == raw["spec"]


def test_the_pod_serves_the_model_with_the_servers_arguments(server, container) -> None:
    assert container["command"] == ["vllm", "serve", server["target"]]
    theirs, ours = _flags(server["args"]), _flags(container["args"])
    assert {flag: ours.get(flag, "absent") for flag in theirs} == theirs


def test_the_pod_has_the_servers_environment(server, container) -> None:
    ours = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert {name: ours.get(name) for name in server["env"]} == server["env"]


def test_the_speculative_config_is_the_servers(server, container) -> None:
    theirs, ours = server["speculative_config"], _flags(container["args"]).get("--speculative-config")
    if theirs is None:
        assert ours is None
    else:
        assert json.loads(ours or "") == {"method": "mtp", **theirs}  # Gemma's drafters are named without a method


def test_the_pod_gets_only_what_the_page_says_that_every_pod_gets(server, container) -> None:
    theirs = {
        *(("argument", flag) for flag in _flags(server["args"])),
        *(("environment", name) for name in server["env"]),
    }
    if server["speculative_config"] is not None:
        theirs.add(("argument", "--speculative-config"))
    assert _all(container) - theirs == _page("always") - theirs


def test_an_added_tensor_parallel_size_is_vllms_default(server, container) -> None:
    if "--tensor-parallel-size" not in server["args"]:
        assert _flags(container["args"])["--tensor-parallel-size"] == "1"


def test_the_page_lists_everything_that_is_ever_added_and_nothing_else() -> None:
    seen: Added = set()
    for path in (HERE / "examples").glob("*.yaml"):
        spec = SpecDecodeDeploymentSpec.model_validate(yaml.safe_load(path.read_text()))
        users = {
            *(("argument", flag) for flag in _flags(spec.engine.args)),
            *(("environment", variable.name) for variable in spec.engine.env),
        }
        seen |= _all(_container("llama", spec)) - users
    assert seen == _page()
