"""vLLM's own parser and speculative-config code read what the operator renders, as far as that goes without weights.

It stops where vLLM reads the config of a drafter that is not on this machine, and, for heads in the checkpoint, where
it finds that the small target which stands in has none. Each test says so. Nothing here needs a GPU or a network.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness import vllm_fleet, vllm_host
from harness.images import PROJECT
from specfleet.api import validation
from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.resources.revision import render

pytestmark = pytest.mark.vllm
FOLDER = PROJECT / "docs/examples/amd"
SERVERS: list[dict[str, Any]] = json.loads((PROJECT / "tests/resources/amd-servers.json").read_text())
RESOURCES = {raw["metadata"]["name"]: raw for raw in map(yaml.safe_load, map(Path.read_text, FOLDER.glob("*.yaml")))}
# What the operator's arguments set beyond the server's own; see docs/what-the-operator-adds.md.
ADDED = {"model_tag", "served_model_name", "port", "tensor_parallel_size", "shutdown_timeout", "speculative_config"}
HAS_TEMPLATE = "--chat-template"  # a file of the ROCm image


def _rendered(raw: dict[str, Any]) -> list[str]:
    """What follows `vllm serve` in the pods of a resource."""
    spec = validation.parse(raw)
    assert isinstance(spec, SpecDecodeDeploymentSpec)
    (container,) = render(raw["metadata"]["name"], "x-2345678b", spec)["template"]["spec"]["containers"]
    return [*container["command"][2:], *container["args"]]


def _read(commands: list[list[str]]) -> list[dict[str, Any]]:
    target = str(vllm_host.MODELS / "tiny-target")
    read: list[dict[str, Any]] = json.loads(vllm_host.ask("parse.py", target, input=json.dumps(commands)))
    return read


def _measured(server: dict[str, Any]) -> list[str]:
    config = server["speculative_config"]
    return [server["target"], *server["args"], *(["--speculative-config", json.dumps(config)] if config else [])]


@pytest.fixture(scope="module")
def rendered() -> dict[str, dict[str, Any]]:
    """What vLLM read, by resource."""
    return dict(zip(RESOURCES, _read(list(map(_rendered, RESOURCES.values()))), strict=True))


@pytest.fixture(scope="module")
def measured() -> list[dict[str, Any]]:
    """What vLLM read of each server as it was measured."""
    return _read(list(map(_measured, SERVERS)))


def _essence(read: dict[str, Any]) -> tuple[str, str]:
    """Everything that was set but what the operator adds, in one text."""
    return read["set"]["model_tag"], json.dumps(
        {k: v for k, v in read["set"].items() if k not in ADDED}, sort_keys=True
    )


def test_the_parser_takes_every_resource(rendered: dict[str, dict[str, Any]]) -> None:
    assert len(rendered) == len(SERVERS)
    assert {name: read for name, read in rendered.items() if "refused" in read} == {}


def test_vllm_reads_the_same_arguments_as_of_the_servers_that_were_measured(
    rendered: dict[str, dict[str, Any]], measured: list[dict[str, Any]]
) -> None:
    assert sorted(map(_essence, rendered.values())) == sorted(map(_essence, measured))


def test_the_checks_of_vllm_serve_miss_only_the_chat_template_of_the_rocm_image(
    rendered: dict[str, dict[str, Any]],
) -> None:
    for name, read in rendered.items():
        has_template = any(HAS_TEMPLATE in argument for argument in _rendered(RESOURCES[name]))
        assert ("chat template" in read["checks"]) is has_template, read["checks"]
        assert has_template or read["checks"] == ""


@pytest.mark.parametrize("name", sorted(RESOURCES))
def test_the_speculative_config_is_read_up_to_the_weights(name: str, rendered: dict[str, dict[str, Any]]) -> None:
    """No speculation: to the end. A drafter: to its config.json. Heads: to the checkpoint that would have them."""
    speculation, read = RESOURCES[name]["spec"]["speculation"], rendered[name]
    if speculation["method"] == "none":
        assert read["speculation"] is None
    elif "draft" in speculation:
        repository = speculation["draft"]["source"]["huggingFace"]["repo"]
        assert f"Invalid repository ID or local directory specified: '{repository}'" in read["stopped"]
    else:
        assert read["stopped"] == "NotImplementedError: Unsupported speculative method: 'mtp'"


def test_with_a_config_at_hand_vllm_reads_it_to_the_end() -> None:
    argv = _rendered(vllm_fleet.manifest("tiny", 4))
    places = {"/models/target": str(vllm_host.MODELS), "/models/draft": str(vllm_host.MODELS)}
    for mounted, here in places.items():
        argv = [argument.replace(mounted, here) for argument in argv]
    (read,) = _read([argv])
    assert read["checks"] == ""
    drafter = str(vllm_host.MODELS / vllm_fleet.DRAFTER)
    assert read["speculation"]["method"] == "draft_model"
    assert read["speculation"]["model"] == drafter
    assert read["speculation"]["num_speculative_tokens"] == "4"


def test_a_key_that_vllm_does_not_know_is_refused_by_it() -> None:
    raw = vllm_fleet.manifest("tiny", 4)
    raw["spec"]["speculation"]["options"] = {"no_such_key": 1}
    (read,) = _read([_rendered(raw)])
    assert "no_such_key" in read["stopped"]
