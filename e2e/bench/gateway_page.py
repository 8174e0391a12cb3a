"""Words for what was measured behind the gateway: what specfleet is held to, and all contenders side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from bench import tally
from bench.contenders import BLOCK_SECONDS, REPLICAS, SCRAPE_SECONDS, SPEED_PERCENT, STEP_SECONDS, THRESHOLD, WEIGHTS
from bench.losses import ENDPOINT, Lost
from bench.report import Figure, Section, grid
from bench.routed_manifests import DRAIN_SECONDS, FAILURES
from bench.stories import Story
from bench.watch import SCRAPE_SECONDS as METRIC_SECONDS
from bench.watch import WINDOW_SECONDS
from harness.crowd import RATE, STREAMS
from specfleet.resources.pod import PRESTOP_SECONDS

OURS = "specfleet"
Results = Mapping[str, Mapping[str, Story]]  # by title, then by story
TITLES = {
    "promotion": "A. a promotion",
    "killed": "B. a promotion; at a quarter of the requests a pod of stable is killed with SIGKILL",
    "third": "C. at a quarter of the requests a third revision takes the place of the second, and is promoted",
}
PODS = REPLICAS + 1


def section(results: Results, gateway: str, plugin: str) -> Section:
    """Everything; `plugin` says which program routed for Argo."""
    ours = results.get(OURS, {})
    shown = [story for story in TITLES if _stories(results, story)]
    tables = ("\n".join([f"**{TITLES[story]}**", "", *grid(rows(results, story))]) for story in shown)
    return Section(
        "A promotion behind a gateway",
        tuple(conditions(gateway, plugin)),
        tuple(_held(ours)) if ours else (),
        (*tables, "A time runs from the edit. Pods count as long as they have not ended, terminating ones included."),
    )


def conditions(gateway: str, plugin: str) -> Iterator[str]:
    """The same for all, then what was chosen for each and why."""
    steps = ", ".join(str(weight) for weight in WEIGHTS)
    yield (
        f"a one-node Kubernetes with real kubelet and containers, more GPUs than anyone asks for, and {gateway}; "
        f"{REPLICAS} replicas of the simulated vLLM server with the pod template that specfleet renders, for all; one "
        "contender after the other in one run, each alone with its controller, in a cluster-wide account of its own"
    )
    yield (
        f"load through the gateway, open arrivals, a connection for each request, no retries: {RATE:.0f} short "
        f"completions a second and {STREAMS * 60:.0f} streams of a minute started per minute"
    )
    yield (
        f"a pod that is told to go has {PRESTOP_SECONDS} s of preStop and then {DRAIN_SECONDS} s for its running "
        "requests (vLLM's own time-out); no limit for the time of a request in any route"
    )
    yield (
        f"steps of {steps} and 100 % with {STEP_SECONDS} s each (specfleet has no dwell at 100 %); the new revision "
        "differs from the old one in nothing but a mark"
    )
    yield (
        f"a failure is the killed pod's if the pod had begun the answer, or if the gateway itself answered 503 or cut "
        f"the connection, within {ENDPOINT:.0f} s of the kill"
    )
    yield from _chosen(plugin)


def _chosen(plugin: str) -> Iterator[str]:
    yield (
        f"specfleet: maxSurge 1, maxUnavailable 0, `traffic.gateway`, scrapeSeconds {SCRAPE_SECONDS}, blockSeconds "
        f"{BLOCK_SECONDS}, speedPercent {SPEED_PERCENT}, errorPoints 5, retainSeconds 5; it demands proof before "
        "100 %, and takes a pod away only when its streams have ended or have had their time, one pod after the other: "
        "that is what its seconds are spent on"
    )
    yield (
        f"Argo Rollouts: its Gateway API plugin ({plugin}), default flags; with a traffic router canary pods are added "
        "to all of stable's, so there is no surge to choose (`dynamicStableScale`, which is off by default, was left "
        "off, and scaleDownDelaySeconds at its default of 30); analysis every 10 s in the background, failureLimit "
        f"{FAILURES - 1}"
    )
    yield (
        "Flagger: provider gatewayapi:v1, default flags, the Deployment as its page on zero downtime has it "
        "(maxUnavailable 0; maxSurge 1); it doubles the fleet by design, and replaces its primary pods while the "
        f"canary has all requests; interval 10 s, threshold {FAILURES}; a step of Flagger is one interval, so a "
        f"confirm-traffic-increase webhook lets it take a step every {STEP_SECONDS} s; its copy of the pods does not "
        "know `preStop.sleep`, so theirs is the command `sleep`"
    )
    yield (
        "both analyses: accepted over drafted tokens of the canary's pods in the last "
        f"{WINDOW_SECONDS:.0f} s at least {THRESHOLD}, from the benchmark's own collector, which reads the pods every "
        f"{METRIC_SECONDS:.0f} s as a Prometheus would"
    )
    yield "cohorts were left out: Argo's plugin can route by header, Flagger only in its A/B mode, which has no weights"


def _held(ours: Mapping[str, Story]) -> Iterator[Figure]:
    """Over all stories, without what belongs to the killed pod."""
    every = list(ours.values())
    both = (("failed short requests", [one.short for one in every]), ("cut streams", [one.streams for one in every]))
    for what, each in both:
        failed, sent = sum(one.failed for one in each), sum(one.sent for one in each)
        yield Figure(f"{what}, all stories, without the killed pod's", f"{failed} of {sent}", "0", met=failed == 0)
    peak = max(one.peak for one in every)
    yield Figure("most pods at a time", str(peak), f"≤ {PODS}", met=peak <= PODS)
    promoted = sum(one.outcome == "promoted" for one in every)
    yield Figure("promoted", f"{promoted} of {len(every)}", "all", met=promoted == len(every))


def _stories(results: Results, name: str) -> dict[str, Story]:
    return {title: found[name] for title, found in results.items() if name in found}


ROWS: Sequence[tuple[str, Callable[[Story], str]]] = (
    ("outcome", lambda one: one.outcome),
    ("failed short requests", lambda one: lost(one.short)),
    ("cut streams", lambda one: lost(one.streams)),
    ("API requests until promoted, without Leases and Events", lambda one: str(tally.work(one.requests))),
    ("most pods at a time", lambda one: str(one.peak)),
    ("until promoted", lambda one: f"{one.seconds:.0f} s"),
    ("until only the new pods were left", lambda one: f"{one.gone:.0f} s"),
)
OF_THE_KILLED: Sequence[tuple[str, Callable[[Story], str]]] = (
    ("short requests lost with the killed pod", lambda one: kinds(one.short.killed)),
    ("streams lost with the killed pod", lambda one: kinds(one.streams.killed)),
)


def rows(results: Results, name: str) -> list[list[str]]:
    """One story's table, headings first."""
    told = _stories(results, name)
    shown = (*ROWS[:3], *OF_THE_KILLED, *ROWS[3:]) if name == "killed" else ROWS
    head = ["", *told]
    return [head, *([what, *(cell(one) for one in told.values())] for what, cell in shown)]


def lost(one: Lost) -> str:
    """As in "3 of 16000 (2 http 503, 1 reset)"."""
    why = f" ({kinds(one.kinds)})" if one.kinds else ""
    return f"{one.failed} of {one.sent}{why}"


def kinds(found: Mapping[str, int]) -> str:
    """The most frequent first; 0 for none."""
    return (
        ", ".join(f"{count} {kind}" for kind, count in sorted(found.items(), key=lambda one: (-one[1], one[0]))) or "0"
    )
