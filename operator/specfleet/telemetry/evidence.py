"""What a rollout has measured: paired blocks of both arms and sums per pod, and their form at rest. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from specfleet.telemetry.counters import COUNTERS, Tally

MAX_BLOCKS = 1440  # a day of one-minute blocks, about 200 kB: a rollout that waits longer forgets its oldest blocks
MAX_NUMBER = 1e30  # far from where squares overflow
DECIMALS = 3  # counters are whole numbers; seconds are kept to the millisecond
FORMAT = 1
# What a block keeps, in the order of its arrays: what the judge compares. The rest is in the sums per pod.
BLOCK_FIELDS = (
    "drafts",
    "draft_tokens",
    "accepted",
    "decode_outputs",
    "decode_seconds",
    "iterations",
    "http_requests",
    "http_errors",
    "seconds",
)
POD_FIELDS = (*COUNTERS, "seconds")


class Arm(StrEnum):
    """A side of a rollout."""

    STABLE = "stable"
    CANARY = "canary"


@dataclass(frozen=True, slots=True)
class Block:
    """One block as it was collected: a tally per pod of each arm, over the same ticks."""

    stable: Mapping[str, Tally]
    canary: Mapping[str, Tally]


@dataclass(frozen=True, slots=True)
class PairedBlock:
    """One block pooled over each arm's pods; only BLOCK_FIELDS and `speculating` are kept."""

    stable: Tally
    canary: Tally


@dataclass(frozen=True, slots=True)
class Evidence:
    """All blocks in order, and for every pod that was ever in one its sum over them (leavers keep theirs)."""

    blocks: tuple[PairedBlock, ...]
    pods: Mapping[Arm, Mapping[str, Tally]]
    forgotten: int = 0  # blocks beyond MAX_BLOCKS
    _text: list[str] = field(default_factory=list, init=False, repr=False, compare=False)  # to_json's, once asked for

    @property
    def seen(self) -> int:
        """How many blocks there were in all."""
        return self.forgotten + len(self.blocks)

    def add(self, block: Block) -> "Evidence":
        """This evidence and one more block. Rounds to DECIMALS here, so that what is judged is what is stored."""
        paired = PairedBlock(stable=_pooled(block.stable), canary=_pooled(block.canary))
        pods = {
            Arm.STABLE: _joined(self.pods[Arm.STABLE], block.stable),
            Arm.CANARY: _joined(self.pods[Arm.CANARY], block.canary),
        }
        forgotten = self.forgotten + (len(self.blocks) >= MAX_BLOCKS)
        return Evidence((*self.blocks, paired)[-MAX_BLOCKS:], pods, forgotten)

    def to_json(self) -> str:
        """A compact form: at most 20 kB for 120 blocks and 10 pods. `from_json` gives back an equal value. It is made
        once: every look asks for it, and a block comes only now and then."""
        if not self._text:
            self._text.append(self._written())
        return self._text[0]

    def _written(self) -> str:
        document = {
            "format": FORMAT,
            "forgotten": self.forgotten,
            "blocks": [[_row(b.stable, BLOCK_FIELDS), _row(b.canary, BLOCK_FIELDS)] for b in self.blocks],
            "pods": {
                arm.value: {pod: [*_row(t, POD_FIELDS), _plain(t.per_position)] for pod, t in self.pods[arm].items()}
                for arm in Arm
            },
        }
        return json.dumps(document, separators=(",", ":"))


EMPTY = Evidence((), {Arm.STABLE: {}, Arm.CANARY: {}})


def from_json(text: str) -> Evidence:
    """Read what `Evidence.to_json` wrote. Raises ValueError on anything else."""
    try:
        document = json.loads(text)
    except (RecursionError, TypeError) as error:
        raise ValueError("not evidence") from error
    document = _mapping(document)
    if document.keys() != {"format", "forgotten", "blocks", "pods"} or document["format"] != FORMAT:
        raise ValueError("not evidence of a known format")
    pods = _mapping(document["pods"])
    if pods.keys() != {arm.value for arm in Arm}:
        raise ValueError("not the pods of two arms")
    return Evidence(
        blocks=tuple(_block(row) for row in _array(document["blocks"])),
        pods={arm: {pod: _pod(row) for pod, row in _mapping(pods[arm.value]).items()} for arm in Arm},
        forgotten=int(_number(document["forgotten"])),
    )


def pool(tallies: Mapping[str, Tally]) -> Tally:
    """Sum over pods, in the order of their names so that the same pods always give the same floats."""
    return sum((tallies[pod] for pod in sorted(tallies)), Tally.zero())


def _pooled(tallies: Mapping[str, Tally]) -> Tally:
    total = _rounded(pool(tallies))
    return Tally(
        *(getattr(total, name) if name in BLOCK_FIELDS else 0.0 for name in POD_FIELDS), speculating=total.speculating
    )


def _joined(sums: Mapping[str, Tally], more: Mapping[str, Tally]) -> dict[str, Tally]:
    joined = dict(sums)
    for pod, tally in more.items():
        joined[pod] = _rounded(joined.get(pod, Tally.zero()) + tally)
    return joined


def _rounded(tally: Tally) -> Tally:
    return Tally(
        *(round(value, DECIMALS) for value in tally.numbers()),
        per_position=tuple(round(value, DECIMALS) for value in tally.per_position),
        speculating=tally.speculating,
    )


def _row(tally: Tally, names: tuple[str, ...]) -> list[float]:
    return [int(tally.speculating), *_plain(tuple(getattr(tally, name) for name in names))]


def _plain(values: tuple[float, ...]) -> list[float]:
    return [int(value) if value.is_integer() else value for value in values]


def _block(row: object) -> PairedBlock:
    sides = _array(row)
    if len(sides) != len(Arm):
        raise ValueError("a block has two arms")
    stable, canary = (_tally(_array(side), BLOCK_FIELDS, ()) for side in sides)
    return PairedBlock(stable=stable, canary=canary)


def _pod(row: object) -> Tally:
    *numbers, positions = _array(row) or [None]
    return _tally(numbers, POD_FIELDS, tuple(_number(value) for value in _array(positions)))


def _tally(row: list[object], names: tuple[str, ...], positions: tuple[float, ...]) -> Tally:
    if len(row) != len(names) + 1 or row[0] not in (0, 1):
        raise ValueError("a tally of the wrong length")
    values = dict(zip(names, map(_number, row[1:]), strict=True))
    return Tally(*(values.get(name, 0.0) for name in POD_FIELDS), per_position=positions, speculating=bool(row[0]))


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("not a number")
    if not 0 <= value <= MAX_NUMBER:  # NaN fails too
        raise ValueError("not a number that a sum of counters can have")
    return float(value)


def _array(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError("not an array")
    return value


def _mapping(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value
