"""The situations in which judges are compared, and what is asked of a judge in each."""

from __future__ import annotations

from dataclasses import dataclass

from bench.judge_world import Cell

SOME, MUCH = 0.08, 0.15  # logits: 1.8 and 3.4 points between pods
LIMIT = 8.0  # points: the default margin and the most by which it is widened
HIDDEN = 0.4  # of a stable pod's requests: batches so small that a slower canary looks faster


@dataclass(frozen=True, slots=True)
class Trial:
    """A cell, the heading that it has in the tables (empty: only its power is measured), and whether a bad canary is
    tried there too."""

    cell: Cell
    heading: str = ""

    @property
    def with_bad(self) -> bool:
        return bool(self.heading)


def _shape(canary: int, stable: int, spread: float, heading: str = "") -> Trial:
    return Trial(Cell(f"{canary} + {stable}, {_spread(spread)}", stable, canary, spread), heading)


def _spread(spread: float) -> str:
    return f"pods differ by {22.75 * spread:.1f} points" if spread else "equal pods"


TRIALS = (
    _shape(4, 4, 0, "equal pods"),
    _shape(4, 4, SOME, "pods ±1.8"),
    _shape(4, 4, MUCH, "pods ±3.4"),
    Trial(Cell("drift", drift=0.5), "drift"),
    Trial(Cell("drift while the canary's share grows", drift=0.5, canary_begins=0.05), "drift × steps"),
    Trial(Cell("ten times the traffic, pods differ by 1.8 points", spread=SOME, load=10), "10 × traffic, ±1.8"),
    _shape(1, 4, SOME, "1 + 4 pods, ±1.8"),
    Trial(Cell("a tenth of the scrapes missing", missing=0.1), "missing scrapes"),
    Trial(Cell("another mix of prompts from some moment on, in both arms", mix=-0.8), "mix changes"),
    Trial(Cell("smaller batches in the canary", canary_load=HIDDEN), "smaller batches"),
    _shape(2, 8, 0, "2 + 8 pods"),
    _shape(2, 8, SOME, "2 + 8 pods, ±1.8"),
    _shape(2, 8, MUCH, "2 + 8 pods, ±3.4"),
    *(_shape(canary, 4, spread) for canary, spread in ((1, 0.0), (1, MUCH))),
    *(_shape(2, stable, spread) for stable in (2, 3) for spread in (0.0, SOME, MUCH)),
)
