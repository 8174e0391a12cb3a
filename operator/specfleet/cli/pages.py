"""Recorded metrics pages through the operator's own parser, Collector and judge: a folder becomes looks."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from specfleet.cli.replay import PastLook
from specfleet.judgement.judge import Policy, judge
from specfleet.telemetry.collector import MAX_WARMUP, Collector
from specfleet.telemetry.counters import Observation
from specfleet.telemetry.evidence import EMPTY, Arm, Evidence
from specfleet.telemetry.page import MAX_PAGE, MalformedPage, Sample, parse, wanted

LAYOUT = "<seconds>/<stable or canary>/<pod>.prom, such as 1790000000/canary/llama-9d2zx4kv-x7k2p.prom"
SKIP = "delete the file, and that scrape counts as one that failed"


class BadInput(Exception):
    """What is wrong with what was given, and where, in one line."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The pages of one tick, by arm and pod; `time` in seconds of any clock."""

    time: float
    pages: Mapping[Arm, Mapping[str, Path]]


@dataclass(frozen=True, slots=True)
class Recorded:
    """All looks at a folder of pages, the evidence after the last one, and what is in no block of it, by reason."""

    looks: tuple[PastLook, ...]
    evidence: Evidence
    dropped: Mapping[str, int]


def recorded(folder: Path, block_seconds: float, comparable: bool, policy: Policy) -> Recorded:
    """One look after every block. Raises BadInput."""
    collector, evidence, looks = Collector(block_seconds, min(MAX_WARMUP, block_seconds)), EMPTY, []
    for tick in ticks(folder):
        arms = {arm: {pod: _observation(pod, page) for pod, page in pages.items()} for arm, pages in tick.pages.items()}
        if block := collector.tick(tick.time, arms):
            evidence = evidence.add(block)
            looks.append(PastLook(len(evidence.blocks), judge(evidence, comparable, policy)))
    return Recorded(tuple(looks), evidence, collector.dropped)


def ticks(folder: Path) -> list[Tick]:
    """The ticks of a folder in the order of their times. Raises BadInput where its layout is another."""
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder; pages lie in it as {LAYOUT}")
    found = sorted((_tick(path) for path in _folders(folder)), key=lambda tick: tick.time)
    if not any(pods for tick in found for pods in tick.pages.values()):
        raise BadInput(f"{folder} holds no pages; they lie in it as {LAYOUT}")
    for before, after in pairwise(found):
        if before.time == after.time:
            raise BadInput(f"{folder} has two folders for the time {after.time:g}; keep one of them")
    return found


def _folders(folder: Path) -> Iterator[Path]:
    try:
        found = sorted(folder.iterdir())
    except OSError as error:
        raise BadInput(f"{folder} cannot be read: {error.strerror}") from None
    return (path for path in found if path.is_dir() and not path.name.startswith("."))


def _tick(folder: Path) -> Tick:
    try:
        time = float(folder.name)
    except ValueError:
        time = math.nan
    if not math.isfinite(time):
        raise BadInput(f"{folder} is not named by a time in seconds; pages lie as {LAYOUT}")
    pages: dict[Arm, dict[str, Path]] = {}
    for path in _folders(folder):
        if path.name not in list(Arm):
            raise BadInput(f"{path}: an arm is called stable or canary; pages lie as {LAYOUT}")
        pages[Arm(path.name)] = {page.stem: page for page in sorted(path.glob("*.prom"))}
    return Tick(time, pages)


def _observation(pod: str, page: Path) -> Observation:
    """A counter that started anew is told by the page itself: it carries the start of its process."""
    return Observation((pod, 0), read(page))


def read(page: Path) -> Sample:
    """One page, bounded as in the operator. Raises BadInput with the file, and where it is known the line."""
    try:
        if page.exists() and not page.is_file():
            raise BadInput(f"{page} is no file; {SKIP}")
        with page.open("rb") as file:
            content = file.read(MAX_PAGE + 1)
    except OSError as error:
        raise BadInput(f"{page} cannot be read: {error.strerror}") from None
    if len(content) > MAX_PAGE:
        raise BadInput(f"{page} is larger than {MAX_PAGE >> 20} MiB, which the operator reads no page beyond; {SKIP}")
    try:
        return parse(content)
    except MalformedPage as error:
        line = _line(content, str(error))
        raise BadInput(f"{page}{f', line {line}' if line else ''}: {error}; {SKIP}") from None


def _line(content: bytes, trouble: str) -> int | None:
    """The number of the line that is malformed by itself; None where only several together are."""
    for number, line in enumerate(content.split(b"\n"), start=1):
        if wanted(line):
            try:
                parse(line)
            except MalformedPage as error:
                if str(error) == trouble:
                    return number
    return None
