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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

COUNTER = re.compile(r"^(vllm:[a-z_]+|http_requests_total)(\{[^}]*\})? ([0-9.e+-]+)$", re.MULTILINE)
POSITION = re.compile(r'position="(\d+)"')


@dataclass(slots=True)
class Sighting:
    """The last that was seen of one pod. `drafts` None: its page has no speculation families."""

    revision: str
    ip: str
    ready: bool = False
    serving: bool = False
    drafts: float | None = None
    accepted: float | None = None
    positions: int = 0
    generated: float = 0.0
    requests: float = 0.0


@dataclass(slots=True)
class Log:
    """Every pod ever seen by name, and how many pods were there at most at a time."""

    pods: dict[str, Sighting] = field(default_factory=dict)
    most: int = 0

    def of(self, revision: str) -> list[Sighting]:
        """The pods of a revision."""
        return [pod for pod in self.pods.values() if pod.revision == revision]

    @staticmethod
    def read(path: Path) -> Log:
        """What a running witness has written last."""
        raw = json.loads(path.read_text())
        return Log({name: Sighting(**pod) for name, pod in raw["pods"].items()}, raw["most"])


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
    pod.generated = sums.get("vllm:generation_tokens_total", 0.0)
    pod.requests = sums.get("http_requests_total", 0.0)


async def look(log: Log, pods: list[dict[str, Any]], session: aiohttp.ClientSession) -> None:
    """One round over the pods that are there now."""
    log.most = max(log.most, sum(pod["status"].get("phase") in ("Pending", "Running") for pod in pods))
    for raw in pods:
        labels, ip = raw["metadata"]["labels"], raw["status"].get("podIP", "")
        known = log.pods.setdefault(raw["metadata"]["name"], Sighting(labels.get("specfleet.dev/revision", ""), ip))
        conditions = {item["type"]: item["status"] for item in raw["status"].get("conditions", ())}
        known.ip, known.ready = ip, conditions.get("Ready") == "True"
        known.serving = labels.get("specfleet.dev/serving") == "true"
        if not ip:
            continue
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with session.get(f"http://{ip}:8000/metrics") as answer:
                note(known, (await answer.read()).decode(errors="replace"))


async def run(kubectl: list[str], selector: str, file: Path) -> None:
    """Look every second until SIGTERM."""
    stop, log = asyncio.Event(), Log()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
        while not stop.is_set():
            command = [*kubectl, "get", "pods", "-l", selector, "-o", "json"]
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
    parser.add_argument("--selector", required=True)
    parser.add_argument("--file", type=Path, required=True)
    arguments = parser.parse_args()
    kubectl = [arguments.kubectl, f"--kubeconfig={arguments.kubeconfig}"]
    asyncio.run(run(kubectl, arguments.selector, arguments.file))


if __name__ == "__main__":
    main()
