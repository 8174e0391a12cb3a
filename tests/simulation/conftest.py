"""Runs engines in virtual time, and holds pages of the real server against what they count."""

from pathlib import Path

import pytest

from simulated import Page, Run, job, page_of
from specfleet.simulation.dials import DEFAULT, Dials
from specfleet.simulation.engine import Engine, Settings

PAGES = Path(__file__).parent / "pages"


@pytest.fixture(scope="session")
def run() -> Run:
    """run(settings, requests, mix, gap, dials): the page after so many requests, `gap` seconds apart."""

    def _run(
        settings: Settings,
        requests: int = 60,
        mix: tuple[str, ...] = ("chat",),
        gap: float = 0.4,
        dials: Dials = DEFAULT,
    ) -> Page:
        engine = Engine(settings, dials)
        now = 0.0
        for number in range(requests):
            engine.advance(now)
            engine.submit(now, job(settings, number, mix[number % len(mix)]))
            now += gap
        while (ends := engine.next_event()) is not None:
            engine.advance(ends)
        return page_of(settings, engine.counters, requests)

    return _run


@pytest.fixture(scope="session")
def real() -> dict[str, Page]:
    """Pages of vLLM 0.32.0 itself (CPU build, a 6 M target and a 1 M drafter), by name."""
    return {path.stem: Page(path.read_text()) for path in PAGES.glob("*.txt")}
