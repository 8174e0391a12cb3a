"""The cluster that both are measured on: the load on a Service, and what is seen from outside."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench.look import Look, State
from harness.errors import HarnessError
from harness.fleet import MIX
from harness.load import GRACE, Load
from harness.loadreport import Report
from harness.process import Daemon, tail
from harness.stage import PROJECT, Stage

GPUS = 24  # so that no pod of either waits for one
RATE, SHORT_TOKENS = 100.0, 16
STREAM_RATE, STREAM_TOKENS = 1.0, 1500  # a stream takes about ten seconds, so about ten are open
BRISK_RATE, BRISK_TOKENS = 4.0, 300  # as many open, shorter: pods are idle sooner, and the next canary can start
WARM_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Answers:
    """What the load generators got: requests of each kind, and those without their whole answer."""

    short: int = 0
    failed: int = 0
    streams: int = 0
    cut: int = 0
    why: tuple[str, ...] = ()


class Traffic:
    """Both loads while they run."""

    def __init__(self, short: Load, streams: Load) -> None:
        self._loads = (short, streams)

    def started(self) -> bool:
        """Both have had answers."""
        return all(load.started() and load.report.answered > 0 for load in self._loads)

    def finish(self) -> Answers:
        """End both and count."""
        short, streams = (load.finish() for load in self._loads)
        if short is None or streams is None:
            raise HarnessError("a load generator wrote no report")
        return Answers(short.sent, _lost(short), streams.sent, _lost(streams), (*_why(short), *_why(streams)))


def _lost(report: Report) -> int:
    return report.failed + report.in_flight


def _why(report: Report) -> tuple[str, ...]:
    return tuple(f"{kind} x {count}" for kind, count in report.failures.items())


class Arena:
    """A stage with a watcher; each measurement has a load of its own."""

    def __init__(self, stage: Stage, seed: int = 1) -> None:
        self.stage, self.random = stage, random.Random(seed)
        self._file = stage.cluster.state / "watch.jsonl"
        self._stack = ExitStack()
        self._loads = 0
        self._offset, self._looks = 0, list[Look]()

    def __enter__(self) -> Arena:
        keys = self.stage.cluster.settings.keys
        self._stack.enter_context(
            self.daemon("watch", [sys.executable, "-m", "bench.watch", "--keys", str(keys), "--file", str(self._file)])
        )
        self.stage.wait("watcher", 20, lambda: bool(self.looks()))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def daemon(self, name: str, command: list[str], environment: Mapping[str, str] | None = None) -> Iterator[Daemon]:
        """A process in the cluster's network, until the block ends."""
        cluster = self.stage.cluster
        known = {**os.environ, "PYTHONPATH": str(PROJECT / "e2e"), **(environment or {})}
        daemon = Daemon(name, [*cluster.exec_prefix, *command], cluster.state / f"log/{name}.log", known)
        try:
            yield daemon
        except HarnessError:
            self.stage.say(f"the end of {name}'s log:\n{tail(daemon.log, 20)}")
            raise
        finally:
            daemon.stop()

    @contextmanager
    def traffic(self, service: str, brisk: bool = False) -> Iterator[Traffic]:
        """Short requests and streams at `Service <service>`, warm when the block begins; brisk: with short streams."""
        rate, tokens = (BRISK_RATE, BRISK_TOKENS) if brisk else (STREAM_RATE, STREAM_TOKENS)
        address = self.stage.kubectl("get", "svc", service, "-o", "jsonpath={.spec.clusterIP}")
        self._loads += 1
        with (
            self._load(address, "short", RATE, SHORT_TOKENS, 0.0) as short,
            self._load(address, "streams", rate, tokens, 1.0) as streams,
        ):
            traffic = Traffic(short, streams)
            self.stage.wait("first answers", 30, traffic.started)
            time.sleep(WARM_SECONDS)
            yield traffic

    @contextmanager
    def _load(self, address: str, kind: str, rate: float, tokens: int, share: float) -> Iterator[Load]:
        name = f"{kind}-{self._loads}"
        file = self.stage.cluster.state / f"{name}.json"
        command = [
            sys.executable, "-m", "harness.loadgen", "--url", f"http://{address}:8000", "--rate", str(rate),
            "--seconds", "3600", "--mix", MIX, "--max-tokens", str(tokens), "--json", str(file),
            "--stream-share", str(share), "--grace", str(GRACE), "--seed", str(self._loads),
        ]  # fmt: skip
        with self.daemon(name, command) as daemon:
            yield Load(daemon, file)

    def looks(self) -> list[Look]:
        """Everything the watcher has seen so far, oldest first."""
        if self._file.exists():
            with self._file.open() as file:
                file.seek(self._offset)
                while (line := file.readline()).endswith("\n"):
                    self._looks.append(Look.read(json.loads(line)))
                    self._offset = file.tell()
        return self._looks

    def since(self, begin: float) -> list[Look]:
        """How it was at `begin`, and every change after it."""
        looks = self.looks()
        return [*[look for look in looks if look.time < begin][-1:], *(look for look in looks if look.time >= begin)]

    def state(self, name: str) -> State:
        """How far an application is now."""
        return self.looks()[-1].states.get(name, State())

    def peak(self, name: str, begin: float) -> int:
        """The most pods of an application at a time since `begin`."""
        return max((look.pods.get(name, 0) for look in self.since(begin)), default=0)

    def endpoints(self, name: str, revision: str) -> int:
        """Ready endpoints that a revision has in `Service <name>` now."""
        return self.looks()[-1].serving.get(name, {}).get(revision, 0)

    def emptied(self, name: str, revision: str, begin: float) -> float | None:
        """When, after `begin`, the revision left `Service <name>` for good; None: it is still there."""
        left: float | None = None
        for look in self.since(begin):
            there = look.serving.get(name, {}).get(revision, 0)
            left = None if there else left or max(look.time, begin)
        return left

    def wait(self, name: str, what: str, seconds: float, done: Callable[[], bool]) -> None:
        """Until `done()`, telling meanwhile how far the application is."""

        def tell() -> str:
            look = self.looks()[-1]
            return f"  {self.state(name).said}  {look.pods.get(name, 0)} pods, serving {look.serving.get(name, {})}"

        self.stage.wait(what, seconds, done, tell)
