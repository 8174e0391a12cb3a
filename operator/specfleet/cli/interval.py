"""A metric's interval against its margin as one line of 31 characters. Pure."""

from collections.abc import Callable

from rich.text import Text

WIDTH = 31
ZERO = WIDTH // 2  # always in the middle: better is right of it, worse is left
LEGEND = "right is better; ┆ margin, │ no difference"

_ROOM = 2.0  # a margin is at most half-way from the middle to the left edge


def bar(lower: float | None, estimate: float | None, upper: float | None, margin: float | None, style: str) -> Text:
    """Zero, −`margin` and the interval [`lower`, `upper`] around `estimate`, all in one unit; None is not drawn.

    The line never shows a nearer relation to the margin than there is: an end beyond the margin is drawn beyond it,
    however coarse the scale.
    """
    cells, styles = ["·"] * WIDTH, ["dim"] * WIDTH
    column = _scale(lower, upper, margin)
    if lower is not None and upper is not None:
        for index in range(column(lower), column(upper) + 1):
            cells[index], styles[index] = "━", style
    cells[ZERO], styles[ZERO] = "│", "bold"
    if margin is not None:
        mark = column(-margin)
        cells[mark], styles[mark] = "┆", "bold"
    if estimate is not None:
        index = column(estimate)
        cells[index], styles[index] = "●", style
    return Text.assemble(*zip(cells, styles, strict=True))


def _scale(lower: float | None, upper: float | None, margin: float | None) -> Callable[[float], int]:
    half = max(abs(lower or 0.0), abs(upper or 0.0), _ROOM * (margin or 0.0)) or 1.0
    mark = None if margin is None else min(ZERO - 1, ZERO - round(ZERO * margin / half))

    def column(value: float) -> int:
        index = min(WIDTH - 1, max(0, ZERO + round(ZERO * value / half)))
        if mark is None or margin is None or value == -margin:
            return index if mark is None else mark
        return max(index, mark + 1) if value > -margin else min(index, mark - 1)

    return column
