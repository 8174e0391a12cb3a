"""`make bench-control`: what a rollout costs, how fast a collapsed canary is taken away; Argo Rollouts in one run.

Then a fleet at rest, and what a page and a pass cost. docs/benchmarks.md is written when every part was measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from bench import argo_build, micro, report, rest
from bench.arena import GPUS, Arena
from bench.command import completed
from bench.contenders import SCRAPE_SECONDS, Argo, Contender, Ours
from bench.report import Section
from bench.sections import Results, sections
from bench.trials import collapses, promotion, quiet
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
            mine, template = measured(arena, ours, asked.parts, asked.runs, SCRAPE_SECONDS), ours.template()
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


def measure(asked: Asked) -> list[Section]:
    """Every part that was asked for."""
    found: list[Section] = []
    if set(asked.parts) & set(ON_CLUSTER):
        found += on_cluster(asked)
    if "rest" in asked.parts:
        found.append(rest.measure())
    if "micro" in asked.parts:
        found.append(micro.measure())
    return found


def _asked() -> Asked:
    parser = argparse.ArgumentParser(prog="python -m bench.control", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=PARTS, help="these parts; the page is left as it is"
    )
    parser.add_argument("--runs", type=int, default=20, help="collapses of ours (default: 20)")
    parser.add_argument("--peer-runs", type=int, default=3, help="of Argo's; 0 leaves it out (default: 3)")
    given = parser.parse_args()
    return Asked(given.only, given.runs, given.peer_runs)


def main() -> int:
    """Measure, print, write the page; 1 if a bar was missed."""
    asked = _asked()
    found = completed("bench-control", lambda: measure(asked))
    print("\n".join(report.rendered(section) for section in found))
    if set(asked.parts) == set(PARTS):
        print(report.write("control", found))
    return int(any(figure.met is False for section in found for figure in section.figures))


if __name__ == "__main__":
    sys.exit(main())
