"""Draws docs/benchmark-judges.svg: for every judge and cell, equal canaries aborted and bad ones promoted."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from bench.report import PAGE

if TYPE_CHECKING:
    from bench.judge import Outcome

PICTURE = PAGE.parent / "benchmark-judges.svg"
LEFT, PANEL, GAP, ROW, TOP = 380, 290, 40, 26, 56
OURS, THEIRS, BAR = "#0b6e4f", "#5b6770", "#c1121f"
PANELS = (("equal canaries that were aborted", 5.0), ("canaries 5 points worse that were promoted", 2.0))


def draw(outcome: Outcome) -> None:
    """Write the picture."""
    PICTURE.write_text(svg(_rows(outcome)))


def _rows(outcome: Outcome) -> dict[str, tuple[list[float], list[float]]]:
    """Judge -> percent for each cell, left panel and right."""
    rows: dict[str, tuple[list[float], list[float]]] = {}
    for one in outcome.judged:
        for result, _ in one.results:
            left, right = rows.setdefault(result.judge, ([], []))
            left.append(100 * result.equal.aborted)
            right.append(100 * result.bad.promoted if result.bad else 0.0)
    return rows


def svg(rows: dict[str, tuple[list[float], list[float]]]) -> str:
    """A strip of dots for each judge, in two panels of 0 to 100 %; the dashed line is the bar that we are held to."""
    width, height = LEFT + 2 * PANEL + GAP + 20, TOP + ROW * len(rows) + 36
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
            'font-size="12">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            *_names(rows),
            *_panels(rows),
            "</svg>\n",
        )
    )


def _names(rows: dict[str, tuple[list[float], list[float]]]) -> Iterator[str]:
    for number, name in enumerate(rows):
        yield (
            f'<text x="{LEFT - 12}" y="{_y(number) + 4}" text-anchor="end" fill="{_colour(name)}">{escape(name)}</text>'
        )


def _panels(rows: dict[str, tuple[list[float], list[float]]]) -> Iterator[str]:
    bottom = TOP + ROW * len(rows)
    for place, (title, bar) in enumerate(PANELS):
        left = LEFT + place * (PANEL + GAP)
        yield f'<text x="{left}" y="20" font-weight="bold">{title}</text>'
        yield f'<text x="{left}" y="38" fill="{THEIRS}">one dot for each situation; dashed: {bar:g} %</text>'
        for percent in (0, 25, 50, 75, 100):
            x = _x(left, percent)
            yield f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{bottom}" stroke="#e3e6e8"/>'
            yield f'<text x="{x}" y="{bottom + 18}" text-anchor="middle" fill="{THEIRS}">{percent} %</text>'
        x = _x(left, bar)
        yield f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{bottom}" stroke="{BAR}" stroke-dasharray="4 3"/>'
        for number, (name, points) in enumerate(rows.items()):
            yield from _dots(left, number, _colour(name), points[place])


def _dots(left: int, number: int, colour: str, percents: list[float]) -> Iterator[str]:
    for percent in percents:
        yield (
            f'<circle cx="{_x(left, percent)}" cy="{_y(number)}" r="5" fill="{colour}" fill-opacity="0.45" '
            f'stroke="{colour}"/>'
        )


def _x(left: int, percent: float) -> float:
    return round(left + PANEL * percent / 100, 1)


def _y(number: int) -> float:
    return TOP + ROW * (number + 0.5)


def _colour(name: str) -> str:
    return OURS if name.startswith("specfleet") else THEIRS
