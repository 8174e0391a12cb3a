"""`make bench-control`: what a rollout costs, how fast a collapsed canary is taken away; Argo Rollouts in one run.

Then a fleet at rest, and what a page and a pass cost. Each of the three parts of docs/benchmarks.md is replaced when it
was measured whole.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from bench import argo_build, micro, report, rest
from bench.arena import GPUS, Arena
from bench.contenders import SCRAPE_SECONDS, Argo, Contender, Ours
from bench.report import Section
from bench.sections import Results, sections
from bench.trials import collapses, promotion, quiet
from harness.command import completed
from harness.stage import Stage

ON_CLUSTER = ("promotion", "collapse", "quiet")
PARTS = (*ON_CLUSTER, "rest", "micro")
ANALYSIS_SECONDS = 10.0  # of Argo's
SEED = 1


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for: which parts, and how many collapses of ours and of Argo's."""

    parts: Sequence[str]
    runs: int
    peer_runs: int


def on_cluster(asked: Asked) -> Iterator[Section]:
    """Both, one after the other, on one cluster."""
    argo_build.ensure()  # before a cluster waits for it
    with Stage(gpus=GPUS, audit=True) as stage, Arena(stage, SEED) as arena:
        with Ours(arena).running() as ours:
            template = ours.template()  # before the change that is promoted: Argo's is to promote the same
            mine = measured(arena, ours, asked.parts, asked.runs, SCRAPE_SECONDS)
        report.save("control", {"specfleet": asdict(mine)})
        peers = Results()
        if asked.peer_runs:
            with Argo.running(arena, template) as argo:
                peers = measured(arena, argo, asked.parts, asked.peer_runs, ANALYSIS_SECONDS)
        stage.say("measured; the cluster goes")
    report.save("control", {"specfleet": asdict(mine), "argo": asdict(peers)})
    yield from sections(mine, peers)


def measured(arena: Arena, one: Contender, parts: Sequence[str], runs: int, phase: float) -> Results:
    """The parts that were asked for, of one contender."""
    return Results(
        promotion=promotion(arena, one) if "promotion" in parts else None,
        collapses=collapses(arena, one, runs, phase) if "collapse" in parts else None,
        quiet=quiet(arena, one) if "quiet" in parts else None,
    )


def groups(asked: Asked) -> Iterator[tuple[str, bool, Callable[[], list[Section]]]]:
    """What is measured together: the name of its part of the page, whether all of it was asked for, how."""
    together = set(asked.parts) & set(ON_CLUSTER)
    if together:
        yield "control", len(together) == len(ON_CLUSTER) and asked.peer_runs > 0, lambda: list(on_cluster(asked))
    if "rest" in asked.parts:
        yield "rest", True, lambda: [rest.measure()]
    if "micro" in asked.parts:
        yield "micro", True, lambda: [micro.measure()]


def measure(asked: Asked) -> list[Section]:
    """Every part that was asked for, printed and written as soon as it is known."""
    found: list[Section] = []
    for name, whole, measured_now in groups(asked):
        found += (sections_now := measured_now())
        print("\n".join(report.rendered(section) for section in sections_now))
        if whole:
            print(report.write(name, sections_now))
    return found


def _asked() -> Asked:
    parser = argparse.ArgumentParser(prog="python -m bench.control", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=PARTS, help="these parts; promotion, collapse and quiet go together"
    )
    parser.add_argument("--runs", type=int, default=20, help="collapses of ours (default: 20)")
    parser.add_argument("--peer-runs", type=int, default=3, help="of Argo's; 0 leaves it out (default: 3)")
    given = parser.parse_args()
    return Asked(given.only, given.runs, given.peer_runs)


def main() -> int:
    """Measure, print, write the page; 1 if a bar was missed."""
    asked = _asked()
    found = completed("bench-control", lambda: measure(asked))
    return int(any(figure.met is False for section in found for figure in section.figures))


if __name__ == "__main__":
    sys.exit(main())
