"""What a fleet at rest costs: the operator's memory, CPU and requests to a real API server, by number of resources."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.audit import Plane, Request, account, requests
from bench.report import RAW, ROOT, Figure, Section, rendered, save
from bench.stub_pods import DRAFTS, PAGE, StubPods
from bench.usage import Usage
from harness.controlplane import ControlPlane
from harness.errors import HarnessError, say
from harness.process import Daemon, free_ports
from kube_http import KubeHttp
from specfleet.api import names
from specfleet.controller.protocol import SDD
from specfleet.controller.settings import parse

CRD = ROOT / "crds" / "specfleet.dev_specdecodedeployments.yaml"
SIZES = (0, 1, 100, 200, 1000)
PODS = 4  # of each resource
MINUTES = 5.0
HOUR = 3600.0
SETTLE = 90.0  # seconds after the last one is stable: everyone has been looked at once more
RESYNC = parse([]).resync
MARGIN = 20.0  # seconds after a resync is due until it is surely over
MOST_REQUESTS = 60  # an hour, with 100 resources
MOST_MEGABYTES = 120  # with one resource
WRITES = ("create", "update", "patch", "delete", "deletecollection")
SPEC: dict[str, Any] = {
    "replicas": PODS,
    "model": {"source": {"huggingFace": {"repo": "Qwen/Qwen3-8B"}}},
    "speculation": {
        "method": "eagle3",
        "draft": {"source": {"huggingFace": {"repo": "RedHatAI/Qwen3-8B-speculator.eagle3"}}},
        "numSpeculativeTokens": 4,  # as on the page that the pods answer with
        "tuning": {"mode": "Off"},
    },
    "accelerator": {"count": 1},
}

Object = dict[str, Any]


class Operator:
    """The operator's process for the resources of one namespace, as a user of the API server of its own."""

    def __init__(self, plane: ControlPlane, kube: KubeHttp, size: int, folder: Path) -> None:
        self.size, self.namespace = size, f"rest-{size}"
        self.log = folder / f"operator-{size}.log"
        self.stable_after = 0.0
        _create(kube, "/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": self.namespace}})
        config = folder / f"{self.namespace}.kubeconfig"
        config.write_text(json.dumps(account(plane, self.namespace)))
        address = f"127.0.0.1:{free_ports(1)[0]}"
        scope = ["--watch-namespace", self.namespace, "--lease-namespace", self.namespace, "--listen", address]
        environment = {**os.environ, "KUBECONFIG": str(config), "POD_NAME": "specfleet-0"}
        command = [sys.executable, "-m", "specfleet.controller.app", *scope]
        self.started = time.time()
        self._process = Daemon("operator", command, self.log, environment)

    def usage(self) -> Usage:
        """What it has used; raises if it has ended."""
        self.check()
        return Usage.of(self._process.pid)

    def check(self) -> None:
        """Raise, with the end of its log, if it has ended."""
        self._process.check()

    def stop(self) -> None:
        """SIGKILL."""
        self._process.stop()

    def fill(self, kube: KubeHttp, stub: StubPods, seconds: float) -> None:
        """Create its resources, and wait until each is stable."""
        path = f"{SDD.root}/namespaces/{self.namespace}/{SDD.plural}"
        began = time.monotonic()
        for number in range(self.size):
            body = {"apiVersion": names.API_VERSION, "kind": names.KIND, "spec": SPEC}
            _create(kube, path, {**body, "metadata": {"name": f"fleet-{number}"}})
        made, told = time.monotonic() - began, 0.0
        while (stable := _stable(kube, path)) < self.size:
            stub.check()
            self.check()
            passed = time.monotonic() - began
            if passed > seconds:
                raise HarnessError(f"{stable} of {self.size} are stable after {passed:.0f} s; see {self.log}")
            if passed > told + 15:
                told = passed
                say(f"  {passed:.0f} s: {stub.ready[self.namespace]} pods ready, {stable} of {self.size} stable")
            time.sleep(0.5 + self.size / 200)
        self.stable_after = time.monotonic() - began
        say(f"{self.size} resources: created in {made:.1f} s, all stable after {self.stable_after:.0f} s")


@dataclass(frozen=True, slots=True)
class AtRest:
    """What was measured of one operator in `seconds`."""

    size: int
    seconds: float
    cpu: float  # percent of one core
    usage: Usage
    scrapes: int
    resyncs: int
    listed: int  # requests of those resyncs
    other: tuple[tuple[str, int], ...]  # what else was asked, with how often
    written: tuple[str, ...]  # whatever was written
    stable_after: float

    @property
    def per_hour(self) -> float:
        """Requests of an hour: those of its resyncs, and the others at the pace of the window."""
        lists = self.listed / self.resyncs * HOUR / RESYNC if self.resyncs else 0.0
        return lists + sum(count for _, count in self.other) * HOUR / self.seconds

    def __str__(self) -> str:
        others = ", ".join(f"{count} {what}" for what, count in self.other) or "nothing else"
        return (
            f"{self.size} resources: {self.cpu:.1f} % of a core, {self.usage.rss:.0f} MB (peak {self.usage.peak:.0f}); "
            f"{self.seconds:.0f} s: {self.resyncs} resync of {self.listed} requests, {others}; "
            f"{self.per_hour:.0f} requests an hour; {self.scrapes} scrapes"
        )


def run(sizes: Sequence[int], minutes: float) -> list[AtRest]:
    """One operator for each size, all at rest in the same window, which has a resync of each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # each pod has a listening socket
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        folder = RAW / "rest"  # the operators' logs stay there
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        plane = stack.enter_context(Plane())
        plane.kubectl("apply", "--server-side", "-f", str(CRD))
        plane.kubectl("wait", "--for=condition=Established", f"crd/{names.PLURAL}.{names.GROUP}", "--timeout=30s")
        plane.kubectl("get", names.PLURAL, "--all-namespaces")  # asks again until the new kind can be listed
        kube = stack.enter_context(KubeHttp(plane))
        stub = stack.enter_context(StubPods(plane, sum(sizes) * PODS + 64))
        operators = []
        for size in sorted(sizes):
            operators.append(Operator(plane, kube, size, folder))
            stack.callback(operators[-1].stop)
            operators[-1].fill(kube, stub, 180 + size)
        return _rest(plane, operators, stub, minutes)


def _rest(plane: ControlPlane, operators: list[Operator], stub: StubPods, minutes: float) -> list[AtRest]:
    _wait(SETTLE, "until all rest", operators, stub)
    start = time.time()
    before = [operator.usage() for operator in operators]
    scraped = [stub.scrapes[operator.namespace] for operator in operators]
    due = max(_next_resync(operator.started, start) for operator in operators) + MARGIN
    _wait(max(60 * minutes, due - start), "at rest", operators, stub)
    after = [operator.usage() for operator in operators]
    end = time.time()
    served = [stub.scrapes[operator.namespace] - count for operator, count in zip(operators, scraped, strict=True)]
    asked = [request for request in requests(plane.audit_log) if start <= request.time < end and request.counts]
    return [_at_rest(*one, end - start, asked) for one in zip(operators, before, after, served, strict=True)]


def _next_resync(started: float, now: float) -> float:
    return started + RESYNC * (1 + (now - started) // RESYNC)


def _at_rest(
    operator: Operator, before: Usage, after: Usage, scrapes: int, seconds: float, asked: Iterable[Request]
) -> AtRest:
    mine = [request for request in asked if request.namespace == operator.namespace]
    lists = [item for item in mine if item.verb == "list" and not item.agent.startswith("kopf")]
    resyncs = sum(item.what == SDD.plural and "continue=" not in item.uri for item in lists)
    others = [item for item in mine if item not in lists]
    counted = Counter(f"{item.verb} {item.what}" for item in others)
    return AtRest(
        operator.size,
        seconds,
        100 * (after.cpu - before.cpu) / seconds,
        after,
        scrapes,
        resyncs,
        len(lists),
        tuple(counted.most_common()),
        tuple(f"{item.verb} {item.uri}" for item in others if item.verb in WRITES),
        operator.stable_after,
    )


def _wait(seconds: float, why: str, operators: Iterable[Operator], stub: StubPods) -> None:
    say(f"{seconds:.0f} s {why}")
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        for operator in operators:
            operator.check()
        stub.check()
        time.sleep(min(2.0, left))


def _stable(kube: KubeHttp, path: str) -> int:
    return sum((raw.get("status") or {}).get("reason") == "Stable" for raw in kube.items(path))


def _create(kube: KubeHttp, path: str, body: Object) -> Object:
    made = kube.call("POST", path, body)
    if not made:
        raise HarnessError(f"{path}: {body['metadata']['name']} cannot be created")
    return made


def measure(sizes: Sequence[int] = SIZES, minutes: float = MINUTES) -> Section:
    """Start everything, measure, stop everything; about 15 minutes for the default."""
    found = run(sizes, minutes)
    for item in found:
        say(str(item))
        for written in item.written[:20]:
            say(f"  written at rest: {written}")
    save("rest", {"sizes": [dataclasses.asdict(item) for item in found]})
    return section(found)


def section(found: Sequence[AtRest]) -> Section:
    """The table of these measurements."""
    seconds = max(item.seconds for item in found)
    kilobytes = PAGE.stat().st_size / 1000
    return Section(
        "A fleet at rest",
        (
            "a real kube-apiserver, etcd and kube-controller-manager; pods are made ready without nodes, and each "
            f"answers at an address of its own with a real page of {kilobytes:.0f} kB",
            f"{DRAFTS:.0f} drafts a second and pod, acceptance always the same but for the noise of counting",
            f"one operator process for each number of resources, {PODS} pods each, tuning off, all in the same window "
            f"of {seconds:.0f} s that begins when all have been stable for {SETTLE:.0f} s and holds at least one "
            f"resync of each (they come every {RESYNC:.0f} s)",
            "requests are counted in the API server's audit log, by the operator's own account, without watches and "
            "the Lease; CPU is user and system time of the process as a share of one core",
        ),
        tuple(figure for item in found for figure in _figures(item)),
    )


def _figures(item: AtRest) -> Iterator[Figure]:
    each = f"{item.size} resource{'' if item.size == 1 else 's'}"
    of = f"{item.listed} in {item.resyncs} resync{'' if item.resyncs == 1 else 's'}"
    of += "".join(f", {count} × {what}" for what, count in item.other)
    barred = item.size == 100
    yield Figure(
        f"{each}: API requests an hour",
        f"{item.per_hour:.0f} ({of} in {item.seconds:.0f} s)",
        f"≤ {MOST_REQUESTS}" if barred else "",
        "Flagger 6,067 GETs a minute; Argo Rollouts none" if barred else "",
        item.per_hour <= MOST_REQUESTS if barred else None,
    )
    one = item.size == 1
    yield Figure(
        f"{each}: memory",
        f"{item.usage.rss:.0f} MB (peak {item.usage.peak:.0f} MB)",
        f"≤ {MOST_MEGABYTES} MB" if one else "",
        met=item.usage.rss <= MOST_MEGABYTES if one else None,
    )
    yield Figure(f"{each}: CPU", f"{item.cpu:.1f} % of one core", "")
    if item.size:
        pods, rate = item.size * PODS, item.scrapes * 60 / item.seconds
        yield Figure(f"{each}: pages read a minute, from {pods} pods", f"{rate:.0f}", "")
        yield Figure(f"{each}: from the first created to all stable", f"{item.stable_after:.0f} s", "")


def main() -> None:
    """Print the section."""
    parser = argparse.ArgumentParser(prog="bench.rest", description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of resources, with commas")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="at least so long; until each has had a resync")
    given = parser.parse_args()
    try:
        print(rendered(measure([int(size) for size in given.sizes.split(",")], given.minutes)))
    except HarnessError as error:
        sys.exit(f"bench.rest: {error}")


if __name__ == "__main__":
    main()
