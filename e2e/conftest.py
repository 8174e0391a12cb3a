"""One cluster with the operator for all scenarios, a fleet for each; what happens is told as it happens."""

from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from harness.fleet import ANALYSIS, Fleet, NewFleet, manifest
from harness.stage import Stage

QUICK = {**ANALYSIS, "blockSeconds": 2, "margins": {"speedPercent": 15, "errorPoints": 10}}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
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
    """One cluster with eight GPUs and the operator."""
    print(flush=True)
    with Stage() as started:
        yield started


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
