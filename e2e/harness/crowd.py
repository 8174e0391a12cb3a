"""Many clients of one fleet through a gateway: short completions at a constant pace beside streams of a minute.

What they saw is the evidence: each failure is either excused by a scenario, which says whose and when, or a defect.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

from harness.errors import HarnessError
from harness.fleet import Fleet
from harness.load import Load
from harness.loadreport import Report
from harness.manifest import ANALYSIS, manifest
from harness.stage import Stage

RATE = 100.0  # short completions per second
SHORT = 8  # tokens of one: some 0.1 s
STREAMS = 0.1  # per second, so that six are open at a time
STREAM = 4350  # tokens of one: a minute and a little more, see SERVER; a drain of 30 s lasts 65 s for a stream
# Every draft is accepted, so that the number of tokens is a time: two tokens per step of some 26 ms.
SERVER = {"VLLM_SIM_SPEED": "0.5", "VLLM_SIM_ACCEPTANCE": "1000"}
SIGMAS = 5.0  # by which the share of one second may be off by chance
FEWEST = 30  # requests of a second by which its split is judged
LOOK_SECONDS = 3.0  # by which a witness may be late, who looks every second, and takes a moment
LAG_SECONDS = 4.0  # by which a gateway may be late on a busy machine
QUICK = {**ANALYSIS, "blockSeconds": 2, "margins": {"speedPercent": 15, "errorPoints": 10, "ttftPoints": 10}}


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that did not get its whole answer. `time` is the Unix epoch of its end, to the second; `pod` the one
    that had begun to answer, empty where the gateway itself answered; `number` counts those of one load."""

    number: int
    time: float
    kind: str
    pod: str
    detail: str


@dataclass(slots=True)
class Crowd:
    """A fleet under constant load; `_told` are failures that a scenario has accounted for."""

    fleet: Fleet
    host: str
    streams: Load
    _told: set[Failure] = field(default_factory=set)

    @property
    def stage(self) -> Stage:
        """Where it all happens."""
        return self.fleet.stage

    def failures(self) -> list[Failure]:
        """Those that no scenario has accounted for yet, in order."""
        found = {*listed(self.fleet.report), *listed(self.streams.report)}
        return sorted(found - self._told, key=lambda failure: failure.time)

    def none_failed(self, what: str) -> None:
        """Since the last account nobody failed."""
        self.excused(what, lambda failure: False)

    def excused(self, what: str, excuse: Callable[[Failure], bool]) -> list[Failure]:
        """Nobody failed since the last account but those that the scenario excuses; gives these."""
        self.stage.wait("news of the load", 10, self._fresh())
        failed = self.failures()
        wrong = [failure for failure in failed if not excuse(failure)]
        self._told.update(failed)
        report, streams = self.fleet.report, self.streams.report
        answers = f"{report.answered} answers and {streams.answered} whole streams so far"
        self.stage.say(f"{what}: {answers}, {len(failed)} failed of late, {len(wrong)} of them without excuse")
        if wrong:
            raise AssertionError(f"{what}: {len(wrong)} failures: {wrong[:20]}\n{self.stage.operator_log(80)}")
        return failed

    def _fresh(self) -> Callable[[], bool]:
        """Both reports have been written after now."""
        before = self.fleet.report.seconds, self.streams.report.seconds
        return lambda: self.fleet.report.seconds > before[0] and self.streams.report.seconds > before[1]

    def follows(self, revision: str, since: int, until: int) -> list[tuple[float, float]]:
        """In every second of [since, until) the revision got the share that the route gave it then, but for chance.

        Gives (asked, measured) for each in which enough was sent to tell.
        """
        report, mine = self.fleet.report, self.fleet.seen_pods(revision)
        seconds: list[tuple[float, float]] = []
        for second in range(since, min(until, len(report.timeline))):
            sent, asked = report.timeline[second].sent, self._asked(revision, report.started + second)
            answers = sum(sent.values())
            if answers < FEWEST:  # this machine was busy elsewhere
                continue
            measured = sum(count for pod, count in sent.items() if pod in mine) / answers
            low, high = min(asked) - _chance(min(asked), answers), max(asked) + _chance(max(asked), answers)
            if not low <= measured <= high:
                raise AssertionError(f"second {second}: {measured:.1%} of {answers}, asked {asked}")
            seconds.append((asked[len(asked) // 2], measured))
        return seconds

    def _asked(self, revision: str, time: float) -> list[float]:
        """The revision's shares that may have been in force in the second from `time` on."""
        looks = self.fleet.log.looks
        before = [look for look in looks if look.time < time - LAG_SECONDS]
        near = [look for look in looks if time - LAG_SECONDS <= look.time < time + 1 + LOOK_SECONDS]
        return [look.share(revision) for look in (*before[-1:], *near)]

    def durations(self) -> dict[str, float | None]:
        """p50, p90 and p99 of the seconds that whole streams took."""
        return self.streams.durations()


def listed(report: Report) -> Iterator[Failure]:
    """A report's failures, in order. HarnessError where there were more than it keeps."""
    for number, item in enumerate(report.failure_examples):
        pod = item["pod"] if item["pod"] not in (None, "unknown") else ""
        yield Failure(number, report.started + item["second"], item["kind"], pod, str(item["detail"]))
    if report.failed > len(report.failure_examples):
        raise HarnessError(f"{report.failed} failures are more than the report keeps")


def _chance(share: float, answers: int) -> float:
    return SIGMAS * sqrt(share * (1 - share) / max(1, answers))


def crowded(name: str, traffic: Mapping[str, Any], replicas: int = 2, **rollout: Any) -> dict[str, Any]:
    """The manifest of a fleet for a crowd: servers of even pace, one surge, and a drain of 30 s."""
    wanted = manifest(name, replicas, traffic=traffic, **{"analysis": QUICK, "retainSeconds": 5, **rollout})
    wanted["spec"]["speculation"]["numSpeculativeTokens"] = 1
    wanted["spec"]["engine"]["env"] = [{"name": key, "value": value} for key, value in SERVER.items()]
    return wanted


@contextmanager
def crowd(fleet: Fleet, host: str, rate: float = RATE) -> Iterator[Crowd]:
    """The crowd comes, and stays for as long as the context lasts."""
    stage = fleet.stage
    short = {"rate": rate, "mix": "code=1", "max_tokens": SHORT, "stream_share": 0.0, "filler": 0}
    long = {"rate": STREAMS, "mix": "code=1", "max_tokens": STREAM, "stream_share": 1.0, "filler": 0}
    with (
        fleet.traffic(host=host, seconds=1800, **short),
        # Those that are open at the end are nobody's loss.
        stage.load(fleet.name, host=host, seconds=1800, grace=1, **long) as streams,
    ):
        stage.wait("first stream's report", 20, streams.started)
        made = Crowd(fleet, host, streams)
        try:
            yield made
        finally:
            took = {key: seconds and round(seconds, 1) for key, seconds in made.durations().items()}
            stage.say(f"{fleet.name}: {streams.report.answered} whole streams took {json.dumps(took)} s")


def pods_by_name(pods: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Their names."""
    return frozenset(str(pod["metadata"]["name"]) for pod in pods)
