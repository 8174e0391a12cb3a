"""Stories: a fleet at rest to begin with, and golden transcripts that `UPDATE_GOLDEN=1 pytest tests/rollout` writes."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from story import Story

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def at_rest() -> Callable[..., Awaitable[Story]]:
    """Makes a fleet whose first revision serves; the transcript begins there."""

    async def _at_rest(**how: Any) -> Story:
        story = Story(**how)
        await story.run_until_reason("Stable", seconds=300)
        await story.run(10)
        story.chapter()
        return story

    return _at_rest


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    """Holds a story against its transcript, and asserts that no user was hurt in it."""

    def _golden(story: Story) -> None:
        path = GOLDEN / f"{request.node.name.removeprefix('test_')}.txt"
        if os.environ.get("UPDATE_GOLDEN"):
            path.write_text(story.text())
        assert story.watchdog.wrongs == [], story.text()
        assert story.fleet.lost == 0, story.text()
        assert story.text() == path.read_text()

    return _golden
