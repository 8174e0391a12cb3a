"""Holds what can be changed on a simulated server, at start from the environment or while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace

PREFIX = "VLLM_SIM_"
METRICS_FAULTS = ("ok", "huge", "endless", "slow", "redirect", "binary", "missing", "nan", "negative", "duplicate")


@dataclass(frozen=True, slots=True)
class Dials:
    """acceptance: factor on every token's probability (0 accepts nothing). speed: factor on step speed (0.5 is half
    as fast). start_seconds: how long loading takes before the port opens. crash: exit 1. hang: requests never progress
    while /health stays 200. garbage: the output repeats one token. garbled: greedy answers read well and are not the
    target's. chat_template: the model has one, or chats are refused. errors: share of requests answered with 500.
    kv: factor on the blocks of the KV cache, as if something else held memory. metrics: one of METRICS_FAULTS.
    """

    acceptance: float = 1.0
    speed: float = 1.0
    start_seconds: float = 0.0
    crash: bool = False
    hang: bool = False
    garbage: bool = False
    garbled: bool = False
    chat_template: bool = True
    errors: float = 0.0
    kv: float = 1.0
    metrics: str = "ok"

    def __post_init__(self) -> None:
        if self.metrics not in METRICS_FAULTS:
            raise ValueError(f"metrics must be one of {', '.join(METRICS_FAULTS)}")
        shares = 0 <= self.errors <= 1 and 0 < self.kv <= 1
        if self.acceptance < 0 or self.speed <= 0 or not shares or self.start_seconds < 0:
            raise ValueError(
                "acceptance and start_seconds must be at least 0, speed above 0, errors within 0 and 1, kv above 0 to 1"
            )


DEFAULT = Dials()


def _value(kind: object, given: object) -> object:
    """`given`, from JSON or an environment variable, as the type that the field is annotated with."""
    if kind == "bool":
        if isinstance(given, bool):
            return given
        if str(given).lower() in {"1", "true", "0", "false"}:
            return str(given).lower() in {"1", "true"}
        raise ValueError(f"{given!r} is neither true nor false")
    if kind == "float":
        if isinstance(given, bool) or not isinstance(given, (int, float, str)):
            raise ValueError(f"{given!r} is no number")
        return float(given)
    return str(given)


def changed(dials: Dials, changes: Mapping[str, object]) -> Dials:
    """`dials` with `changes` applied. ValueError: an unknown name or a value that does not fit."""
    kinds = {field.name: field.type for field in fields(Dials)}
    unknown = sorted(set(changes) - set(kinds))
    if unknown:
        raise ValueError(f"no such dial: {', '.join(unknown)}")
    return replace(dials, **{name: _value(kinds[name], given) for name, given in changes.items()})  # type: ignore[arg-type]


def from_environment(environment: Mapping[str, str]) -> Dials:
    """Dials from `VLLM_SIM_ACCEPTANCE`, `VLLM_SIM_SPEED` and so on. ValueError as in `changed`."""
    names = [field.name for field in fields(Dials)]
    return changed(DEFAULT, {n: environment[PREFIX + n.upper()] for n in names if environment.get(PREFIX + n.upper())})


def as_json(dials: Dials) -> dict[str, object]:
    """The dials as a JSON object."""
    return asdict(dials)
