"""Words for what was measured on the cluster: which figure is held to which bar, and under which conditions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from bench import argo_build, tally
from bench.arena import BRISK_RATE, BRISK_TOKENS, RATE, SHORT_TOKENS, STREAM_RATE, STREAM_TOKENS
from bench.contenders import (
    BLOCK_SECONDS,
    LENGTH,
    LONGER,
    REPLICAS,
    SCRAPE_SECONDS,
    SPEED_PERCENT,
    STEP_SECONDS,
    THRESHOLD,
)
from bench.report import Figure, Section
from bench.trials import QUIET_SECONDS, SETTLE_SECONDS, Collapses, Promotion, Quiet
from bench.watch import SCRAPE_SECONDS as METRIC_SECONDS
from bench.watch import WINDOW_SECONDS

REQUESTS, PODS, MEGABYTES = 76, 9, 120  # Argo's requests in an earlier run; replicas and surge; ours to keep
MEDIAN = 9.8  # seconds: the best of Argo Rollouts and Flagger in an earlier run
LONGEST = 2 * SCRAPE_SECONDS + 1.0
PEER = f"Argo Rollouts {argo_build.VERSION.removeprefix('v')}"
COMMON = (
    f"a one-node Kubernetes with real kubelet, containers and kube-proxy, more GPUs than anyone asks for; {REPLICAS} "
    "replicas of the simulated vLLM server, for both with the same image, command line and probes; both one after the "
    "other in one run",
    f"load on the Service, open arrivals, a connection for each request: {RATE:.0f} short requests ({SHORT_TOKENS} "
    f"tokens) and {STREAM_RATE:.0f} stream ({STREAM_TOKENS} tokens, some ten seconds) a second",
    f"both: maxSurge 1, maxUnavailable 0, steps of 5, 25, 50 and 100 % with {STEP_SECONDS} s each (specfleet has no "
    "dwell at 100 %); weight is the share of pods",
    f"specfleet: scrapeSeconds {SCRAPE_SECONDS}, blockSeconds {BLOCK_SECONDS}, speedPercent {SPEED_PERCENT}, "
    "errorPoints 5; it demands proof before 100 %, and blocks this short and margins this wide make that minutes",
    f"{PEER}: basic canary, default flags, its controller as a process in the cluster's network; analysis every 10 s, "
    "initialDelay 10 s, failureLimit 0: accepted over drafted tokens of the canary's pods in the last "
    f"{WINDOW_SECONDS:.0f} s at least {THRESHOLD}, by its `web` provider from the benchmark's own collector, which "
    f"reads the pods every {METRIC_SECONDS:.0f} s as a Prometheus would",
)
Part = TypeVar("Part", Promotion, Collapses, Quiet)


@dataclass(frozen=True, slots=True)
class Results:
    """What was measured of one contender; None: that part was not asked for."""

    promotion: Promotion | None = None
    collapses: Collapses | None = None
    quiet: Quiet | None = None


def sections(ours: Results, peer: Results) -> Iterator[Section]:
    """One section for each part that was measured."""
    if ours.promotion:
        yield _promotion(ours.promotion, peer.promotion)
    if ours.collapses:
        yield _collapses(ours.collapses, peer.collapses)
    if ours.quiet:
        yield _quiet(ours.quiet, peer.quiet)


@dataclass(frozen=True)  # a generic class with slots cannot be told its parameter
class Row(Generic[Part]):
    """How one figure is read from a part's results."""

    what: str
    shown: Callable[[Part], str]
    bar: str = ""
    holds: Callable[[Part], bool] | None = None

    def figure(self, ours: Part, peer: Part | None) -> Figure:
        """Ours beside the peer's."""
        met = self.holds(ours) if self.holds else None
        return Figure(self.what, self.shown(ours), self.bar, self.shown(peer) if peer else "", met)


PROMOTION = (
    Row[Promotion](
        "API requests until promoted, without Leases and Events",
        lambda one: str(tally.work(one.requests)),
        f"≤ {REQUESTS}",
        lambda one: tally.work(one.requests) <= REQUESTS,
    ),
    Row[Promotion](f"and {SETTLE_SECONDS:.0f} s beyond", lambda one: str(tally.work(one.later))),
    Row[Promotion](
        "most pods at a time, terminating ones included",
        lambda one: str(one.peak),
        f"≤ {PODS}",
        lambda one: one.peak <= PODS,
    ),
    Row[Promotion](
        "failed short requests",
        lambda one: f"{one.answers.failed} of {one.answers.short}",
        "0",
        lambda one: one.answers.failed == 0,
    ),
    Row[Promotion](
        "cut streams", lambda one: f"{one.answers.cut} of {one.answers.streams}", "0", lambda one: one.answers.cut == 0
    ),
    Row[Promotion]("from the edit until promoted", lambda one: f"{one.seconds:.0f} s"),
    Row[Promotion]("CPU time of the controller meanwhile", lambda one: f"{one.cost.cpu:.1f} s"),
    Row[Promotion](
        "its resident memory, at most",
        lambda one: f"{one.cost.peak:.0f} MB",
        f"≤ {MEGABYTES} MB",
        lambda one: one.cost.peak <= MEGABYTES,
    ),
)


def _promotion(ours: Promotion, peer: Promotion | None) -> Section:
    return Section(
        f"One promotion: {LENGTH} to {LONGER} speculative tokens, under load",
        (
            *COMMON,
            "requests are counted in the API server's audit log by the controller's own account; a watch counts once",
        ),
        tuple(row.figure(ours, peer) for row in PROMOTION),
        (
            f"specfleet's requests: {tally.told(ours.requests)}.",
            *([f"{PEER}'s: {tally.told(peer.requests)}."] if peer else []),
        ),
        PEER,
    )


COLLAPSE = (
    Row[Collapses](
        "until no canary pod is offered to clients, median",
        lambda one: f"{statistics.median(one.seconds):.1f} s",
        f"< {MEDIAN} s",
        lambda one: statistics.median(one.seconds) < MEDIAN,
    ),
    Row[Collapses](
        "longest",
        lambda one: f"{max(one.seconds):.1f} s",
        f"≤ {LONGEST:.0f} s",
        lambda one: max(one.seconds) <= LONGEST,
    ),
    Row[Collapses](
        f"runs within {LONGEST:.0f} s (two scrapes and a second)",
        lambda one: f"{sum(each <= LONGEST for each in one.seconds)} of {len(one.seconds)}",
        "all",
        lambda one: max(one.seconds) <= LONGEST,
    ),
    Row[Collapses]("shortest", lambda one: f"{min(one.seconds):.1f} s"),
    Row[Collapses](
        "failed short requests",
        lambda one: f"{one.answers.failed} of {one.answers.short}",
        "0",
        lambda one: one.answers.failed == 0,
    ),
    Row[Collapses](
        "cut streams", lambda one: f"{one.answers.cut} of {one.answers.streams}", "0", lambda one: one.answers.cut == 0
    ),
)


def _collapses(ours: Collapses, peer: Collapses | None) -> Section:
    return Section(
        "A canary that stops accepting",
        (
            f"as above, but with shorter streams, {BRISK_RATE:.0f} of {BRISK_TOKENS} tokens a second, so that runs "
            "follow each other sooner, and specfleet goes to 25 % at once and stays there",
            "when the canary has a quarter of the pods, every pod of it stops accepting draft tokens, at a "
            "moment that is random within one scrape of specfleet's and one analysis of Argo's (fixed seed)",
            "the end is seen from outside: a watch on the EndpointSlices of the Service shows no ready endpoint of the "
            "canary any more",
        ),
        tuple(row.figure(ours, peer) for row in COLLAPSE),
        (f"specfleet: {_seconds(ours)}.", *([f"{PEER}: {_seconds(peer)}."] if peer else [])),
        PEER,
    )


def _seconds(one: Collapses) -> str:
    return ", ".join(f"{each:.1f}" for each in one.seconds) + " s"


QUIET = (
    Row[Quiet]("promoted on no evidence", lambda one: _yes(one.promoted), "no", lambda one: not one.promoted),
    Row[Quiet]("called a failure", lambda one: _yes(one.aborted, one.seconds), "no", lambda one: not one.aborted),
    Row[Quiet](
        "what it says",
        lambda one: one.said.split()[0].strip(","),
        "a reason",
        lambda one: one.said.startswith("NoTraffic"),
    ),
)


def _yes(holds: bool, seconds: float | None = None) -> str:
    return ("no", "yes")[holds] + (f", after {seconds:.0f} s" if holds and seconds is not None else "")


def _quiet(ours: Quiet, peer: Quiet | None) -> Section:
    return Section(
        "A canary that nobody asks anything",
        (
            f"as the promotion, but without any load; watched for {QUIET_SECONDS:.0f} s after the canary's first "
            "endpoint, or until it ends; Argo's metric is 0/0, NaN, as from a Prometheus",
        ),
        tuple(row.figure(ours, peer) for row in QUIET),
        (f"specfleet's words: {ours.said}.", *([f"{PEER}'s: {peer.said}."] if peer else [])),
        PEER,
    )
