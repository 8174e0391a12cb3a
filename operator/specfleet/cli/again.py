"""Where a replay comes from: a fleet's record, a ConfigMap in a file, or a folder of recorded pages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from specfleet.api.rollout import Analysis
from specfleet.cli.case import Case
from specfleet.cli.evidence import ARMS
from specfleet.cli.pages import BadInput, recorded
from specfleet.cli.record import Record, written
from specfleet.cli.replay import replay
from specfleet.cli.replayed import Replay
from specfleet.judgement.judge import Policy
from specfleet.judgement.verdict import Metric
from specfleet.rollout.comparison import Comparison, left_out
from specfleet.rollout.margins import FIELDS

MAX_FILE = 4 << 20  # bytes; a ConfigMap has at most 1 MiB
UNSET = Analysis()  # of a spec that says nothing of it
MAX_MARGIN = 1000  # percent or points: beyond any difference that a canary has
APPROXIMATE = "earlier looks with the pods' shares of now"


def of_fleet(case: Case, margins: Sequence[str]) -> Replay:
    """The rollout on its way, or the last one. Raises BadInput where nothing is recorded."""
    record, policy = case.record, case.policy
    if not record.evidence.blocks or policy is None:
        why = record.trouble or "no canary has been compared yet, or the next one has just started"
        raise BadInput(f"there is no evidence of {case.fleet.name}: {why}")
    analysis = case.spec.rollout.analysis if case.spec else UNSET
    block_seconds = record.comparison.block_seconds if record.comparison else analysis.block_seconds
    return _of_record(record, case.fleet.name, case.comparable, with_margins(policy, margins), block_seconds)


def of_file(name: str, content: bytes, margins: Sequence[str]) -> Replay:
    """A ConfigMap as `kubectl get configmap <name>-evidence -o yaml` writes it. Raises BadInput."""
    record = written(_configmap(name, content))
    if record.trouble:
        raise BadInput(f"{name}: {record.trouble}; take it from the cluster again, unedited")
    if not record.evidence.blocks:
        raise BadInput(f"{name} holds no evidence: no canary has been compared yet, or the next one has just started")
    block = UNSET.block_seconds
    about = record.comparison or Comparison(("", ""), "", "", True, defaults(block), block)
    return _of_record(record, name, about.comparable, with_margins(about.policy, margins), about.block_seconds)


def of_pages(folder: Path, block_seconds: float, comparable: bool, margins: Sequence[str]) -> Replay:
    """A folder of recorded pages. Raises BadInput."""
    policy = with_margins(defaults(block_seconds), margins)
    found = recorded(folder, block_seconds, comparable, policy)
    return Replay(str(folder), ARMS, "", found.looks, policy, block_seconds, left_out(found.dropped))


def defaults(block_seconds: float) -> Policy:
    """The margins of a spec that sets none."""
    given = {field: float(getattr(UNSET.margins, field)) for field in FIELDS.values()}
    return Policy(**given, max_blocks=max(1, int(UNSET.max_seconds // block_seconds)))  # type: ignore[arg-type]


def with_margins(policy: Policy, given: Sequence[str]) -> Policy:
    """`policy` with other margins, each given as `speed=3`. Raises BadInput."""
    changed: dict[str, float] = {}
    for text in given:
        name, _, number = text.partition("=")
        try:
            changed[FIELDS[Metric(name)]] = float(number)
        except (ValueError, KeyError):
            known = ", ".join(FIELDS)
            raise BadInput(f"--margin {text}: give it as NAME=NUMBER, with one of {known}, such as speed=5") from None
        if not 0 <= changed[FIELDS[Metric(name)]] <= MAX_MARGIN:  # NaN fails too
            raise BadInput(f"--margin {text}: a margin is a number from 0 to {MAX_MARGIN}")
    return replace(policy, **changed)  # type: ignore[arg-type]


def _of_record(record: Record, name: str, comparable: bool, policy: Policy, block_seconds: float) -> Replay:
    about = record.comparison
    arms = f"{about.canary} minus {about.stable}" if about else ARMS
    looks = replay(record.evidence, comparable, policy, None)
    dropped = left_out(about.dropped) if about else ""
    return Replay(name, arms, APPROXIMATE, looks, policy, block_seconds, dropped)


def _configmap(name: str, content: bytes) -> Mapping[str, object]:
    if len(content) > MAX_FILE:
        raise BadInput(f"{name} is larger than {MAX_FILE >> 20} MiB, which no ConfigMap is")
    try:
        document = yaml.safe_load(content)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise BadInput(f"{name}{line}: not YAML or JSON: {getattr(error, 'problem', None) or 'unreadable'}") from None
    except (RecursionError, ValueError):
        raise BadInput(f"{name}: not YAML or JSON") from None
    if not isinstance(document, Mapping) or document.get("kind") != "ConfigMap":
        raise BadInput(f"{name} is no ConfigMap: give what `kubectl get configmap <name>-evidence -o yaml` writes")
    if not isinstance(document.get("data"), Mapping):
        raise BadInput(f"{name} has no data")
    return document
