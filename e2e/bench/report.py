"""docs/benchmarks.md: what a figure of a benchmark is, and how each benchmark replaces its own part of the page."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
RAW = ROOT / "build" / "bench"
INTRODUCTION = """\
# Benchmarks

What specfleet was measured to do, and the bar that each figure is held to. `make bench-*` writes these tables and
replaces them when it runs again; nothing in them is typed by hand. A figure that does not reach its bar stays here,
marked **missed**.
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: what was measured, ours, the bar that it is held to, a peer's figure. met None: there is no bar."""

    what: str
    ours: str
    bar: str
    peer: str = ""
    met: bool | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a benchmark: its table, the conditions of the measurement, and what else a reader should know."""

    title: str
    conditions: tuple[str, ...]
    figures: tuple[Figure, ...]
    remarks: tuple[str, ...] = ()
    peer: str = "peer"  # whose figures stand beside ours


def write(name: str, sections: Iterable[Section], page: Path = PAGE) -> Path:
    """Replace what stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->`; what is missing is made."""
    text = page.read_text() if page.exists() else INTRODUCTION
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(replaced(text, name, "\n".join([*(rendered(section) for section in sections), stamp(), ""])))
    return page


def stamp() -> str:
    """When, of which commit, and on what machine."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    processors = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    machine = f"{len(processors)} × {processors[0]}" if processors else platform.machine()
    what = f"commit {commit.stdout.strip() or 'unknown'}, {machine}, Python {platform.python_version()}"
    return f"Measured on {datetime.now(UTC):%Y-%m-%d}, {what}."


def _lines(file: str) -> list[str]:
    path = Path(file)
    return path.read_text().splitlines() if path.exists() else []


def save(name: str, data: Mapping[str, object]) -> Path:
    """The raw results of one part as JSON under build/bench, which is not committed."""
    RAW.mkdir(parents=True, exist_ok=True)
    path = RAW / f"{name}.json"
    path.write_text(json.dumps(data, indent=1, sort_keys=True, default=str) + "\n")
    return path


def load(name: str) -> dict[str, object] | None:
    """What `save` kept of that part's last run, or None."""
    path = RAW / f"{name}.json"
    return dict(json.loads(path.read_text())) if path.exists() else None


def replaced(text: str, name: str, body: str) -> str:
    """That page with the part NAME holding `body`, every other part as it was."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    part = f"{begin}\n{body.rstrip()}\n{end}"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if found and closed:
        return before + part + after
    return f"{text.rstrip()}\n\n{part}\n"


def rendered(section: Section) -> str:
    """That section as Markdown."""
    lines = [f"## {section.title}", ""]
    if section.figures:
        lines += [*table(section.figures, section.peer), ""]
    if section.conditions:
        lines += ["**Measured under these conditions**", "", *(f"- {one}" for one in section.conditions), ""]
    for remark in section.remarks:
        lines += [remark, ""]
    return "\n".join(lines)


def table(figures: Iterable[Figure], peer: str) -> list[str]:
    """A Markdown table, padded so that it reads well in a terminal; the peer's column only where it has figures."""
    rows = list(figures)
    peers = any(row.peer for row in rows)
    cells = [["", "specfleet", "bar", "", *([peer] if peers else [])]]
    cells += [
        [row.what, row.ours, row.bar or "-", mark(row.met), *([row.peer or "-"] if peers else [])] for row in rows
    ]
    return grid(cells)


def grid(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows of equally many cells as a Markdown table; the first holds the headings."""
    cells = [[cell.replace("|", "\\|") for cell in line] for line in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    padded = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return [padded[0], rule, *padded[1:]]


def mark(met: bool | None) -> str:
    """How a table says whether the bar was reached."""
    return {True: "met", False: "**missed**", None: ""}[met]
