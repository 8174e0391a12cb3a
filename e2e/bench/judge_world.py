"""A made-up fleet whose truth is known: counters of both arms' pods, tick by tick, for the benchmark of judges."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

TICK_SECONDS = 15
TICKS_PER_BLOCK = 4
BLOCKS = 120
TICKS = BLOCKS * TICKS_PER_BLOCK
RATE = 0.65  # acceptance of stable
REQUEST_TOKENS = 40  # drafted for one request
PROPOSAL = 4  # draft tokens a step
ALIKE = 0.15  # correlation of two tokens of one request
REQUESTS = 15.0  # per pod and tick
BATCH = 8.0  # requests that a pod decodes at a time
STEP_SECONDS = 0.02
STEP_PER_REQUEST = 0.03  # how much longer a step is for each request in it
STEP_NOISE = 0.02  # of a pod's mean step time in one tick
ERRORS = 0.002  # share of requests
DRIFT_TICKS = 120  # half an hour: how long the prompts of one hour resemble each other
_LEVELS = 4096
_RATES = np.arange(0.02, 0.9801, 0.0005)


@dataclass(frozen=True, slots=True)
class Cell:
    """One situation. Spread, drift and mix are in logits of the acceptance rate: 0.01 is about 0.23 points."""

    name: str
    stable: int = 4
    canary: int = 4
    spread: float = 0.0  # standard deviation between pods that lasts
    load: float = 1.0  # times REQUESTS
    drift: float = 0.15  # standard deviation of what both arms' prompts do over the hours
    mix: float = 0.0  # a jump at a random moment, in both arms
    missing: float = 0.0  # share of scrapes without an answer
    canary_load: float = 1.0  # requests of a canary pod over those of a stable one
    canary_begins: float = 1.0  # the same of the first half of the time, at the same batch: a gateway's first step

    @property
    def shape(self) -> str:
        return f"{self.canary} + {self.stable}"


@dataclass(frozen=True, slots=True)
class World:
    """What each pod did in each tick, [pod, tick], the canary's pods last; `answered`: the scrape at the tick's end."""

    cell: Cell
    requests: np.ndarray
    accepted: np.ndarray
    seconds: np.ndarray  # decode seconds
    errors: np.ndarray
    answered: np.ndarray

    @property
    def drafted(self) -> np.ndarray:
        return self.requests * REQUEST_TOKENS

    @property
    def outputs(self) -> np.ndarray:
        return self.drafted / PROPOSAL

    def batch(self, pod: int) -> float:
        """Requests in a step of that pod."""
        return BATCH * (self.cell.canary_load if pod >= self.cell.stable else 1.0)


def make(cell: Cell, worse: float, seed: int, ticks: int = TICKS) -> World:
    """One rollout in which the canary's acceptance is `worse` by so many points (and its speed follows)."""
    rng = np.random.default_rng(seed)
    pods = cell.stable + cell.canary
    is_canary = np.arange(pods) >= cell.stable
    logit = math.log(RATE / (1 - RATE)) + rng.normal(0, cell.spread, (pods, 1)) + _shared(cell, rng, ticks)
    rates = 1 / (1 + np.exp(-logit)) - np.where(is_canary, worse / 100, 0)[:, None]
    loads = np.where(is_canary, cell.canary_load, 1.0)
    early = np.where(is_canary[:, None] & (np.arange(ticks) < ticks // 2), cell.canary_begins, 1.0)
    requests = rng.poisson(REQUESTS * cell.load * loads[:, None] * early, (pods, ticks))
    accepted = _accepted(rates, requests, rng)
    step = STEP_SECONDS * (1 + STEP_PER_REQUEST * BATCH * loads)
    noise = rng.normal(1, STEP_NOISE, (pods, ticks)) * (1 + 0.1 * _slow(0.3, rng, ticks))
    return World(
        cell=cell,
        requests=requests,
        accepted=accepted,
        seconds=requests * REQUEST_TOKENS / PROPOSAL * step[:, None] * noise,
        errors=rng.binomial(requests, ERRORS),
        answered=rng.random((pods, ticks)) >= cell.missing,
    )


def _shared(cell: Cell, rng: np.random.Generator, ticks: int) -> np.ndarray:
    jump = np.arange(ticks) >= rng.integers(ticks // 8, ticks // 2)
    return np.asarray(_slow(cell.drift, rng, ticks) + cell.mix * jump)


def _slow(deviation: float, rng: np.random.Generator, ticks: int) -> np.ndarray:
    """A stationary series of that standard deviation whose memory is DRIFT_TICKS long."""
    keep = math.exp(-1 / DRIFT_TICKS)
    steps = rng.normal(0, deviation * math.sqrt(1 - keep * keep), ticks)
    steps[0] = rng.normal(0, deviation)
    powers = keep ** np.arange(ticks)
    series: np.ndarray = powers * np.cumsum(steps / powers)
    return series


def _accepted(rates: np.ndarray, requests: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Accepted tokens of so many requests, each a draw of its own whose tokens stand and fall together."""
    row = np.rint((np.clip(rates, _RATES[0], _RATES[-1]) - _RATES[0]) / (_RATES[1] - _RATES[0])).astype(np.int64)
    counts = requests.ravel()
    rows = np.repeat(row.ravel(), counts)
    tokens = _table()[rows, rng.integers(0, _LEVELS, rows.size)]
    ends = np.cumsum(counts)
    total = np.concatenate(([0], np.cumsum(tokens, dtype=np.int64)))
    return np.asarray(total[ends] - total[ends - counts]).reshape(requests.shape)


@functools.cache
def _table() -> np.ndarray:
    """[rate, level]: the beta-binomial's quantiles, so that a request is one look-up."""
    strength = 1 / ALIKE - 1
    lgamma = np.frompyfunc(math.lgamma, 1, 1)
    tokens = np.arange(REQUEST_TOKENS + 1)
    good, bad = (_RATES * strength)[:, None], ((1 - _RATES) * strength)[:, None]

    def log_beta(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(lgamma(a) + lgamma(b) - lgamma(a + b), dtype=float)

    choose = np.array([math.log(math.comb(REQUEST_TOKENS, each)) for each in tokens])
    chances = np.exp(choose + log_beta(good + tokens, bad + REQUEST_TOKENS - tokens) - log_beta(good, bad))
    levels = (np.arange(_LEVELS) + 0.5) / _LEVELS
    sums = np.cumsum(chances, axis=1)
    table = np.stack([np.searchsorted(each, levels) for each in sums])
    return np.asarray(table.clip(0, REQUEST_TOKENS), dtype=np.int16)
