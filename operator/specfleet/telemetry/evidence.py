"""What a rollout has measured: paired blocks of both arms and sums per pod, and their form at rest. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from specfleet.telemetry.counters import NUMBERS, Tally

MAX_BLOCKS = 1440  # a day of one-minute blocks, about 200 kB: a rollout that waits longer forgets its oldest blocks
MAX_NUMBER = 1e30  # far from where squares overflow
DECIMALS = 3  # counters are whole numbers; seconds are kept to the millisecond
FORMAT = 2
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
    "timed",
    "late",
)
POD_FIELDS = NUMBERS
FORMER_BLOCK_FIELDS = BLOCK_FIELDS[:-2]  # of format 1, which had no time to the first token, nor positions in blocks
FORMER_POD_FIELDS = POD_FIELDS[:-2]


class Arm(StrEnum):
    """A side of a rollout."""

    STABLE = "stable"
    CANARY = "canary"


@dataclass(frozen=True, slots=True)
class Block:
    """One block as it was collected: a tally per pod of each arm, over the same ticks. First tokens were late beyond
    `bound` seconds; None where nobody asked, or nobody knows."""

    stable: Mapping[str, Tally]
    canary: Mapping[str, Tally]
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class PairedBlock:
    """One block pooled over each arm's pods; only BLOCK_FIELDS and the first position are kept."""

    stable: Tally
    canary: Tally


@dataclass(frozen=True, slots=True)
class Evidence:
    """All blocks in order, and for every pod that was ever in one its sum over them (leavers keep theirs)."""

    blocks: tuple[PairedBlock, ...]
    pods: Mapping[Arm, Mapping[str, Tally]]
    forgotten: int = 0  # blocks beyond MAX_BLOCKS
    bound: float | None = None  # seconds beyond which a first token was `late`
    _text: list[str] = field(default_factory=list, init=False, repr=False, compare=False)  # to_json's, once asked for

    @property
    def seen(self) -> int:
        """How many blocks there were in all."""
        return self.forgotten + len(self.blocks)

    def add(self, block: Block) -> "Evidence":
        """This evidence and one more block. Rounds to DECIMALS here, so that what is judged is what is stored."""
        if block.bound and self.bound and block.bound != self.bound:
            return self._untimed().add(block)
        paired = PairedBlock(stable=_pooled(block.stable), canary=_pooled(block.canary))
        pods = {
            Arm.STABLE: _joined(self.pods[Arm.STABLE], block.stable),
            Arm.CANARY: _joined(self.pods[Arm.CANARY], block.canary),
        }
        forgotten = self.forgotten + (len(self.blocks) >= MAX_BLOCKS)
        return Evidence((*self.blocks, paired)[-MAX_BLOCKS:], pods, forgotten, block.bound or self.bound)

    def _untimed(self) -> "Evidence":
        """Without what was late by another bound: times to the first token start afresh, the rest goes on."""
        blocks = tuple(PairedBlock(stable=_without(b.stable), canary=_without(b.canary)) for b in self.blocks)
        pods = {arm: {pod: _without(tally) for pod, tally in self.pods[arm].items()} for arm in Arm}
        return Evidence(blocks, pods, self.forgotten)

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
            "bound": self.bound,
            "blocks": [[_side(block.stable), _side(block.canary)] for block in self.blocks],
            "pods": {arm.value: {pod: _sums(tally) for pod, tally in self.pods[arm].items()} for arm in Arm},
        }
        return json.dumps(document, separators=(",", ":"))


EMPTY = Evidence((), {Arm.STABLE: {}, Arm.CANARY: {}})


def from_json(text: str) -> Evidence:
    """Read what `Evidence.to_json` wrote, in this format or the one before, in which no first token was timed. Raises
    ValueError on anything else."""
    try:
        document = json.loads(text)
    except (RecursionError, TypeError) as error:
        raise ValueError("not evidence") from error
    document = _mapping(document)
    former = document.get("format") == FORMAT - 1
    if former:
        document = {**document, "format": FORMAT, "bound": None}
    if document.keys() != {"format", "forgotten", "bound", "blocks", "pods"} or document["format"] != FORMAT:
        raise ValueError("not evidence of a known format")
    pods = _mapping(document["pods"])
    if pods.keys() != {arm.value for arm in Arm}:
        raise ValueError("not the pods of two arms")
    block, names = (_former_block, FORMER_POD_FIELDS) if former else (_block, POD_FIELDS)
    return Evidence(
        blocks=tuple(block(row) for row in _array(document["blocks"])),
        pods={arm: {pod: _pod(row, names) for pod, row in _mapping(pods[arm.value]).items()} for arm in Arm},
        forgotten=int(_number(document["forgotten"])),
        bound=None if document["bound"] is None else _number(document["bound"]),
    )


def pool(tallies: Mapping[str, Tally]) -> Tally:
    """Sum over pods, in the order of their names so that the same pods always give the same floats."""
    return Tally.total([tallies[pod] for pod in sorted(tallies)])


def _pooled(tallies: Mapping[str, Tally]) -> Tally:
    total = rounded(pool(tallies))
    numbers = (getattr(total, name) if name in BLOCK_FIELDS else 0.0 for name in POD_FIELDS)
    return Tally(*numbers, per_position=total.per_position[:1])


def _without(tally: Tally) -> Tally:
    return replace(tally, timed=0.0, late=0.0)


def _joined(sums: Mapping[str, Tally], more: Mapping[str, Tally]) -> dict[str, Tally]:
    joined = dict(sums)
    for pod, tally in more.items():
        joined[pod] = rounded(joined.get(pod, Tally.zero()) + tally)
    return joined


def rounded(tally: Tally) -> Tally:
    """To DECIMALS: what is nearly nothing is nothing, and no denominator."""
    return Tally(
        *map(_round, tally.numbers()),
        per_position=tuple(map(_round, tally.per_position)),
        speculating=tally.speculating,
    )


def _round(value: float) -> float:
    return value if value.is_integer() else round(value, DECIMALS)  # most are whole, and rounding is slow


def _side(tally: Tally) -> list[float]:
    return _plain((*(getattr(tally, name) for name in BLOCK_FIELDS), *tally.per_position))


def _sums(tally: Tally) -> list[object]:
    return [int(tally.speculating), *_plain(tally.numbers()), _plain(tally.per_position)]


def _plain(values: tuple[float, ...]) -> list[float]:
    return [int(value) if value.is_integer() else value for value in values]


def _block(row: object) -> PairedBlock:
    stable, canary = (_numbers(side) for side in _sides(row))
    return PairedBlock(stable=_of_block(stable, BLOCK_FIELDS), canary=_of_block(canary, BLOCK_FIELDS))


def _former_block(row: object) -> PairedBlock:
    stable, canary = (_numbers(side)[1:] for side in _sides(row))
    return PairedBlock(stable=_of_block(stable, FORMER_BLOCK_FIELDS), canary=_of_block(canary, FORMER_BLOCK_FIELDS))


def _sides(row: object) -> list[object]:
    sides = _array(row)
    if len(sides) != len(Arm):
        raise ValueError("a block has two arms")
    return sides


def _of_block(numbers: list[float], names: tuple[str, ...]) -> Tally:
    if not 0 <= len(numbers) - len(names) <= (names is BLOCK_FIELDS):
        raise ValueError("a tally of the wrong length")
    return _tally(numbers[: len(names)], names, tuple(numbers[len(names) :]))


def _pod(row: object, names: tuple[str, ...]) -> Tally:
    *numbers, positions = _array(row) or [None]
    speculating, *sums = _numbers(numbers) or [0.5]
    if len(sums) != len(names) or speculating not in (0, 1):
        raise ValueError("a tally of the wrong length")
    return replace(_tally(sums, names, tuple(_numbers(positions))), speculating=bool(speculating))


def _tally(numbers: list[float], names: tuple[str, ...], positions: tuple[float, ...]) -> Tally:
    values = dict(zip(names, numbers, strict=True))
    return Tally(*(values.get(name, 0.0) for name in POD_FIELDS), per_position=positions)


def _numbers(row: object) -> list[float]:
    return [_number(value) for value in _array(row)]


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("not a number")
    if not 0 <= value <= MAX_NUMBER:  # NaN fails too
        raise ValueError("not a number that a sum of counters can have")
    return round(float(value), DECIMALS)  # as `add` does: what is nearly nothing is a denominator of nobody


def _array(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError("not an array")
    return value


def _mapping(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value
