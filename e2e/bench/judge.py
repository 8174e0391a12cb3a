"""Judges canaries whose truth is known with the shipped judge and with those of others, into docs/benchmarks.md."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context

from bench import judge_peers as peers
from bench.judge_cells import TRIALS, Trial
from bench.judge_cost import Cost, measured
from bench.judge_ours import Watched, watch
from bench.judge_plot import draw
from bench.judge_table import Result, data, of_calls, of_peers, score
from bench.judge_words import sections
from bench.judge_world import TICKS_PER_BLOCK, Cell, World, make
from bench.report import rendered, save, write

RUNS = 400
BAD, WORSE = 5.0, 8.0  # points
SOON = 30  # blocks


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of one cell: every rollout of equal canaries as the shipped judge sees it, bad ones, and all judges."""

    trial: Trial
    equal: list[Watched]
    bad: list[Watched]
    results: list[tuple[Result, Result | None]]  # at the default, tuned


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that was measured."""

    runs: int
    judged: list[Judged]
    worse: list[Watched]  # 8 points, 4 + 4 equal pods, the first blocks only
    cost: Cost
    seconds: float


def seed(cell: Cell, kind: int, run: int) -> int:
    """A number of its own for each rollout."""
    place = next(number for number, trial in enumerate(TRIALS) if trial.cell == cell)
    return (place * 10 + kind) * 100_000 + run


def judged(trial: Trial, runs: int) -> Judged:
    """All rollouts of one cell through all judges."""
    cell = trial.cell
    worlds = (make(cell, 0, seed(cell, 0, run)) for run in range(runs))
    if not trial.with_bad:
        return Judged(trial, [watch(world) for world in worlds], [], [])
    equal, equal_rows = _watched(worlds, to_the_end=True)
    bad, bad_rows = _watched((make(cell, BAD, seed(cell, 1, run)) for run in range(runs)), to_the_end=False)
    relative = cell.canary_load != 1
    return Judged(
        trial, equal, bad, [*_ours(equal, bad), *of_peers(data(equal_rows, relative), data(bad_rows, relative))]
    )


def _watched(worlds: Iterator[World], to_the_end: bool) -> tuple[list[Watched], list[tuple[peers.Rows, peers.Rows]]]:
    found, rows = [], []
    for world in worlds:
        found.append(watch(world, to_the_end))
        rows.append((peers.series(world), peers.series(world, speed=world.cell.canary_load != 1)))
    return found, rows


def _ours(equal: list[Watched], bad: list[Watched]) -> Iterator[tuple[Result, None]]:
    for name, setting in (("margin", "3 points"), ("published", "what the pods resolve"), ("strict", "none")):
        ends = (of_calls([getattr(each, name) for each in many]) for many in (equal, bad))
        yield Result(f"specfleet, margin: {setting}", "", *map(score, ends)), None


def worse(runs: int) -> list[Watched]:
    """Canaries that are worse by WORSE, for SOON blocks."""
    cell = TRIALS[0].cell
    return [watch(make(cell, WORSE, seed(cell, 2, run), SOON * TICKS_PER_BLOCK)) for run in range(runs)]


def measure(runs: int, processes: int) -> Outcome:
    """Everything, in at most so many processes."""
    start = time.monotonic()
    cost = measured()
    with get_context("fork").Pool(processes) as pool:
        last = pool.apply_async(worse, (runs,))
        cells = pool.map(partial(judged, runs=runs), TRIALS, chunksize=1)
        return Outcome(runs, cells, last.get(), cost, time.monotonic() - start)


def main() -> None:
    """Measure, write the page's part and the picture, keep the raw results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="rollouts for each cell and truth")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--dry", action="store_true", help="print; write nothing")
    arguments = parser.parse_args()
    outcome = measure(arguments.runs, arguments.processes)
    if arguments.dry:
        print("\n".join(rendered(section) for section in sections(outcome)))
        return
    save("judge", asdict(outcome))
    draw(outcome)
    print(f"{write('judge', sections(outcome))} ({outcome.seconds:.0f} s)")


if __name__ == "__main__":
    main()
