"""One cluster with the operator for all scenarios, a fleet for each; what happens is told as it happens."""

import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from harness.fleet import Fleet, NewFleet
from harness.manifest import ANALYSIS, manifest
from harness.stage import Stage

QUICK = {**ANALYSIS, "blockSeconds": 2, "margins": {"speedPercent": 15, "errorPoints": 10}}
GATEWAY = os.environ.get("GATEWAY") or None  # envoy or contour


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if GATEWAY is None:
        unfit = [item for item in items if "gateway" in item.keywords]
        config.hook.pytest_deselected(items=unfit)
        items[:] = [item for item in items if item not in unfit]
    for item in items:
        if "vllm" not in item.keywords:
            item.add_marker("cluster")


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _live(item))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _live(item))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _live(item))


def _live(item: pytest.Item) -> Generator[None, Any, Any]:
    """Scenarios take minutes: what they print is shown at once, not when they have failed."""
    with item.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        return (yield)


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    """One cluster with eight GPUs and the operator, and the gateway that the environment names."""
    print(flush=True)
    with Stage(audit=True, gateway=GATEWAY) as started:
        yield started


@pytest.fixture(scope="session")
def gateway_stage(stage: Stage) -> Stage:
    """The stage of all other scenarios, behind the gateway that the environment names."""
    assert stage.gateway is not None
    return stage


@pytest.fixture
def new_fleet(stage: Stage, request: pytest.FixtureRequest) -> Iterator[NewFleet]:
    """Makes fleets that are removed after the scenario."""
    stage.say(f"--- {request.node.name.removeprefix('test_').replace('_', ' ')}")

    def make(name: str, **given: Any) -> Fleet:
        fleet = Fleet(stage, name)
        made.callback(fleet.remove)
        fleet.apply(manifest(name, **{"analysis": QUICK, **given}))
        return fleet

    with ExitStack() as made:
        yield make
