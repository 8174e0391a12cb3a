"""What one page and one pass cost in CPU time: the parser on a real page, `plan` at rest and amid a canary."""

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from bench.report import ROOT, Figure, Section, rendered, save
from specfleet.controller.cache import Cache
from specfleet.controller.protocol import CHILDREN, Object
from specfleet.judgement.sequence import t_quantile
from specfleet.plan import Objects, Plan, Seen, plan
from specfleet.telemetry.page import parse
from story import Story

PAGES = ROOT / "tests" / "telemetry" / "pages"
PARSE_BAR_MS, PLAN_BAR_MS = 1.0, 5.0
RUNS = 1000
BASELINE_RUNS = 100  # of a parser that needs 30 ms a page
BLOCKS = 100
REST: Mapping[str, Any] = {"replicas": 4}
CANARY: Mapping[str, Any] = {
    "replicas": 8,
    "rollout": {
        "steps": [{"weight": 10, "minSeconds": 86400}],  # stays there while evidence gathers
        "analysis": {"scrapeSeconds": 15, "blockSeconds": 60, "maxSeconds": 86400},
    },
}


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds of many runs of the same work."""

    median: float
    p99: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ms (p99 {self.p99:.2f} ms)"


@dataclass(frozen=True, slots=True)
class Situation:
    """What one call of `plan` is given."""

    sdd: Object
    objects: Objects
    seen: Seen
    now: float

    def plan(self) -> Plan:
        """Decide it as if for the first time: what the judge has computed of these very numbers before is forgotten."""
        t_quantile.cache_clear()
        return plan(self.sdd, self.objects, self.seen, self.now)


def timed(work: Callable[[], object], runs: int = RUNS) -> Times:
    """`work` run after run; a few before the clock starts fill what the process fills once."""
    for _ in range(5):
        work()
    taken = []
    for _ in range(runs):
        start = time.thread_time()
        work()
        taken.append(1000 * (time.thread_time() - start))
    return Times(statistics.median(taken), statistics.quantiles(taken, n=100)[98])


def biggest_page() -> Path:
    """The biggest page that a real vLLM has answered with."""
    return max(PAGES.glob("*.txt"), key=lambda path: path.stat().st_size)


async def at_rest() -> Situation:
    """Four pods that serve, nothing to do."""
    story = Story(spec=REST)
    await story.run_until_reason("Stable", seconds=300)
    await story.run(600)
    return await _situation(story)


async def mid_canary(blocks: int = BLOCKS) -> Situation:
    """Eight pods of stable and one of the canary, with so many blocks of evidence."""
    story = Story(spec=CANARY)
    await story.run_until_reason("Stable", seconds=300)
    story.edit("3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.weights.get("v2", 0) > 0, seconds=600)
    await story.run((blocks + 2) * 60)
    found = await _situation(story)
    pods = sorted(revision.ready for revision in story.revisions)
    assert pods == [1, 8], f"the canary is not where it should be: {pods} pods, {story.reason}"
    assert found.seen.evidence.seen >= blocks, found.seen.evidence.seen
    return found


async def _situation(story: Story) -> Situation:
    cache = Cache()
    for resource in CHILDREN:
        cache.replace(resource, await story.kube.list(resource))
    return Situation(
        story.sdd, cache.objects(story.key, story.sdd["metadata"]["uid"]), await story.observe(), story.clock.now
    )


def measure() -> Section:
    """Parse and plan, timed here and now; takes about a minute."""
    path = biggest_page()
    page, text = path.read_bytes(), path.read_text()
    parsed = timed(lambda: parse(page))
    baseline = timed(lambda: list(text_string_to_metric_families(text)), BASELINE_RUNS)
    rest, canary = asyncio.run(at_rest()), asyncio.run(mid_canary())
    resting, moving = timed(rest.plan), timed(canary.plan)
    blocks, rows = canary.seen.evidence.seen, page.count(b"\n")
    times = {"parse": parsed, "prometheus_client": baseline, "rest": resting, "canary": moving}
    save("micro", {name: asdict(value) for name, value in times.items()})
    kilobytes = len(page) / 1000
    return Section(
        "What a page and a pass cost",
        (
            f"parse: {path.name}, {kilobytes:.1f} kB and {rows} lines as a real vLLM answered; {RUNS} runs, "
            f"{BASELINE_RUNS} of prometheus_client's text_string_to_metric_families, in the same process",
            "plan: the state that the tests' fleet is in after the same passes as on a cluster; "
            f"{RUNS} runs on the same input, without what the judge remembers of earlier looks at the same numbers",
            "CPU time of the thread, so that other work on the machine does not count",
        ),
        (
            Figure(
                f"parse of a page of {kilobytes:.0f} kB, median",
                str(parsed),
                f"≤ {PARSE_BAR_MS:.0f} ms",
                f"prometheus_client {baseline}",
                parsed.median <= PARSE_BAR_MS,
            ),
            _plan_figure(f"one plan mid-canary, 8 + 1 pods, {blocks} blocks, median", moving),
            _plan_figure("one plan at rest, 4 pods, median", resting),
        ),
    )


def _plan_figure(what: str, times: Times) -> Figure:
    return Figure(what, str(times), f"≤ {PLAN_BAR_MS:.0f} ms", met=times.median <= PLAN_BAR_MS)


def main() -> None:
    """Print the section."""
    argparse.ArgumentParser(prog="bench.micro", description=__doc__).parse_args()
    print(rendered(measure()))


if __name__ == "__main__":
    main()
