"""`make bench-gateway`: the same load through specfleet, Argo Rollouts and Flagger, behind one real gateway.

A promotion; one in which a pod is killed; one in which a third revision arrives. docs/benchmarks.md is written when
everything was measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from bench import argo_plugin, report
from bench.arena import Arena
from bench.gateway_page import section
from bench.report import Section
from bench.routed import CONTENDERS, prepare
from bench.stories import STORIES, Story, stories
from harness.command import completed
from harness.gateway import KINDS
from harness.gatewaybins import CONTOUR, ENVOY_GATEWAY, ENVOY_VERSION
from harness.stage import Stage

GPUS = 28  # so that no pod of anyone waits for one
GATEWAYS = {"envoy": ("Envoy Gateway", ENVOY_GATEWAY[1]), "contour": ("Contour", CONTOUR[1])}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for."""

    contenders: Sequence[str]
    stories: Sequence[str]
    gateway: str

    @property
    def everything(self) -> bool:
        """Nothing was left out."""
        return set(self.contenders) == set(CONTENDERS) and set(self.stories) == set(STORIES)


def measure(asked: Asked) -> Section:
    """Those that were asked for, one after the other, on one cluster."""
    prepare(asked.contenders)  # before a cluster waits for it
    found: dict[str, dict[str, Story]] = {}
    with Stage(gpus=GPUS, audit=True, gateway=asked.gateway) as stage, Arena(stage) as arena:
        for name in asked.contenders:
            with CONTENDERS[name](arena) as one:
                found[one.title] = stories(arena, one, asked.stories)
        stage.say("measured; the cluster goes")
    report.save("gateway", {title: {name: asdict(one) for name, one in told.items()} for title, told in found.items()})
    plugin = f"SHA-256 {argo_plugin.digest(argo_plugin.ensure())}…" if "argo" in asked.contenders else "-"
    title, version = GATEWAYS[asked.gateway]
    return section(found, f"{title} {version.removeprefix('v')} with Envoy {ENVOY_VERSION}", plugin)


def _asked() -> Asked:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), help="these contenders")
    parser.add_argument("--stories", nargs="+", choices=STORIES, default=list(STORIES), help="these stories")
    parser.add_argument("--gateway", choices=KINDS, default="envoy")
    given = parser.parse_args()
    return Asked(given.only, given.stories, given.gateway)


def main() -> int:
    """Measure, print, write the page if nothing was left out; 1 if a bar was missed."""
    asked = _asked()
    found = completed("bench-gateway", lambda: measure(asked))
    print(report.rendered(found))
    if asked.everything:
        print(report.write("gateway", [found]))
    return int(any(figure.met is False for figure in found.figures))


if __name__ == "__main__":
    sys.exit(main())
