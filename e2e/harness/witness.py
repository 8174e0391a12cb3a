"""Watches a fleet from outside, second by second: the pods' own counters, kept beyond the pods' lives."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp

COUNTER = re.compile(r"^(vllm:[a-z_]+|http_requests_total)(\{[^}]*\})? ([0-9.e+-]+)$", re.MULTILINE)
REVISION = "specfleet.dev/revision"
POSITION = re.compile(r'position="(\d+)"')


@dataclass(slots=True)
class Sighting:
    """The last that was seen of one pod. `drafts` None: its page has no speculation families.

    `left`: Unix epoch at which it was first seen without the serving label. `resets`: how often its counters fell.
    """

    revision: str
    ip: str
    ready: bool = False
    serving: bool = False
    drafts: float | None = None
    accepted: float | None = None
    positions: int = 0
    generated: float = 0.0
    requests: float = 0.0
    restarts: int = 0
    resets: int = 0
    left: float | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What the cluster offered from `time` (Unix epoch) on.

    `selects` is the revision that `Service <name>` selects, "*" for all of them, "" while it does not exist; `serving`
    are ready pods with the serving label by revision. `routed`: with a route, the weights of the rule for everybody by
    revision, that of `Service <name>` under "".
    """

    time: float
    selects: str
    serving: dict[str, int]
    routed: dict[str, int] = field(default_factory=dict)

    def share(self, revision: str) -> float:
        """The part of new requests that a revision gets."""
        service = self.routed.get("", 0) * self._of_service(revision)
        total = sum(self.routed.values())
        return (service + self.routed.get(revision, 0)) / total if total else self._of_service(revision)

    def _of_service(self, revision: str) -> float:
        if self.selects != "*":
            return float(self.selects == revision)
        return self.serving.get(revision, 0) / max(1, sum(self.serving.values()))


@dataclass(slots=True)
class Log:
    """Every pod ever seen by name, how many pods were there at most at a time, and each change of what was offered."""

    pods: dict[str, Sighting] = field(default_factory=dict)
    most: int = 0
    looks: list[Look] = field(default_factory=list)

    def of(self, revision: str) -> list[Sighting]:
        """The pods of a revision."""
        return [pod for pod in self.pods.values() if pod.revision == revision]

    @staticmethod
    def read(path: Path) -> Log:
        """What a running witness has written last."""
        raw = json.loads(path.read_text())
        pods = {name: Sighting(**pod) for name, pod in raw["pods"].items()}
        return Log(pods, raw["most"], [Look(**look) for look in raw["looks"]])


def counters(page: str) -> dict[str, float]:
    """Sums over labels of the counters that the witness reads."""
    sums: dict[str, float] = {}
    for name, _, value in COUNTER.findall(page):
        sums[name] = sums.get(name, 0.0) + float(value)
    return sums


def note(pod: Sighting, page: str) -> None:
    """Take a page into what is known of its pod."""
    sums = counters(page)
    pod.drafts = sums.get("vllm:spec_decode_num_drafts_total")
    pod.accepted = sums.get("vllm:spec_decode_num_accepted_tokens_total")
    pod.positions = len(set(POSITION.findall(page)))
    generated = sums.get("vllm:generation_tokens_total", 0.0)
    pod.resets += generated < pod.generated
    pod.generated = generated
    pod.requests = sums.get("http_requests_total", 0.0)


def offered(items: list[dict[str, Any]], now: float) -> Look:
    """What the listed pods, Services and routes offer to clients of `Service <name>`, or of its route."""
    selects, serving, routed = "", dict[str, int](), dict[str, int]()
    for raw in items:
        labels = raw["metadata"]["labels"]
        if raw["kind"] == "Service" and REVISION not in labels:
            selects = raw["spec"]["selector"].get(REVISION, "*")
        elif raw["kind"] == "Pod" and _ready(raw) and _serving(raw):
            serving[labels[REVISION]] = serving.get(labels[REVISION], 0) + 1
        elif raw["kind"] == "HTTPRoute":
            routed = _routed(raw)
    return Look(now, selects, serving, routed)


def _routed(route: dict[str, Any]) -> dict[str, int]:
    """Weights by revision. The rule for everybody is the last: those of cohorts, which match more, come first."""
    name = route["metadata"]["name"]
    references = route["spec"]["rules"][-1].get("backendRefs", ())
    return {"" if item["name"] == name else item["name"]: item.get("weight", 1) for item in references}


def _ready(pod: dict[str, Any]) -> bool:
    conditions = {item["type"]: item["status"] for item in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def _serving(pod: dict[str, Any]) -> bool:
    return bool(pod["metadata"]["labels"].get("specfleet.dev/serving") == "true")


async def look(log: Log, items: list[dict[str, Any]], session: aiohttp.ClientSession) -> None:
    """One round over the pods and Services that are there now."""
    now = time.time()
    seen = offered(items, now)
    if not log.looks or replace(log.looks[-1], time=now) != seen:
        log.looks.append(seen)
    pods = [item for item in items if item["kind"] == "Pod"]
    log.most = max(log.most, sum(pod["status"].get("phase") in ("Pending", "Running") for pod in pods))
    await asyncio.gather(*(_look_at(log, raw, now, session) for raw in pods))


async def _look_at(log: Log, raw: dict[str, Any], now: float, session: aiohttp.ClientSession) -> None:
    labels, ip = raw["metadata"]["labels"], raw["status"].get("podIP", "")
    known = log.pods.setdefault(raw["metadata"]["name"], Sighting(labels.get(REVISION, ""), ip))
    known.ip, known.ready, known.serving = ip, _ready(raw), _serving(raw)
    known.left = None if known.serving else known.left or now
    known.restarts = sum(item["restartCount"] for item in raw["status"].get("containerStatuses", ()))
    if not ip:
        return
    with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
        async with session.get(f"http://{ip}:8000/metrics") as answer:
            note(known, (await answer.read()).decode(errors="replace"))


async def run(kubectl: list[str], kinds: str, selector: str, file: Path) -> None:
    """Look every second until SIGTERM."""
    stop, log = asyncio.Event(), Log()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
        while not stop.is_set():
            command = [*kubectl, "get", kinds, "-l", selector, "-o", "json"]
            answer = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
            if answer.returncode == 0:
                await look(log, json.loads(answer.stdout)["items"], session)
                partial = file.with_suffix(".tmp")
                partial.write_text(json.dumps(asdict(log)))
                os.replace(partial, file)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubectl", required=True)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--kinds", default="pods,services", help="with httproutes where the cluster knows them")
    parser.add_argument("--selector", required=True)
    parser.add_argument("--file", type=Path, required=True)
    arguments = parser.parse_args()
    kubectl = [arguments.kubectl, f"--kubeconfig={arguments.kubeconfig}"]
    asyncio.run(run(kubectl, arguments.kinds, arguments.selector, arguments.file))


if __name__ == "__main__":
    main()
