"""All judges on the same made-up rollouts: how often and when each aborts or promotes, at its default and tuned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from bench import judge_peers as peers
from bench.judge_ours import Calls
from bench.judge_peers import NEVER, Ends, Series

MARGIN = 3.0  # points of acceptance
SPEED_MARGIN = 5.0  # percent, where speed is compared
LEVEL_MINUTES = 10  # a fixed threshold is set from what stable did in the first so many
KAYENTA_LOOKS = (30, 60)  # minutes: Spinnaker asks for at least 50 points and 30 minutes between judgements
GAPS = np.arange(MARGIN, 40.1, 0.5)
ALPHAS = 0.05 * 10.0 ** -np.arange(0, 250, 0.5)
RATIOS = np.arange(1.0, 0.6, -0.005)


@dataclass(frozen=True, slots=True)
class Data:
    """The same rollouts as the peers see them; `level` is stable's usual ratio."""

    tokens: Series  # accepted and drafted tokens
    canary: np.ndarray  # [run, minute]: the compared ratio
    stable: np.ndarray
    relative: bool  # gaps in percent, not in points

    def gaps(self, fixed: bool) -> np.ndarray:
        """How much better the canary is than stable in the same minute, or than a fixed threshold's level."""
        level = np.full_like(self.stable, self.stable[:, :LEVEL_MINUTES].mean()) if fixed else self.stable
        return np.asarray(100 * (self.canary / level - 1) if self.relative else 100 * (self.canary - level))


@dataclass(frozen=True, slots=True)
class Peer:
    """A judge with one dial: its documented value, and the values that make it ever milder."""

    name: str
    ends: Callable[[Data, float], Ends]
    default: Callable[[Data], float]
    dial: np.ndarray
    shown: Callable[[float], str]


def _margin(data: Data) -> float:
    return SPEED_MARGIN if data.relative else MARGIN


def _argo(data: Data, allowed: float, fixed: bool, interval: int, count: int, limit: int) -> Ends:
    return peers.argo(data.gaps(fixed), allowed, interval, count, limit)


def _flagger(data: Data, allowed: float, fixed: bool) -> Ends:
    return peers.flagger(data.gaps(fixed), allowed, threshold=10, steps=25)


def _windowed(name: str, ends: Callable[..., Ends], **settings: object) -> Iterator[Peer]:
    for fixed, against in ((False, "stable"), (True, "a fixed level")):
        yield Peer(f"{name}, against {against}", partial(ends, fixed=fixed, **settings), _margin, GAPS, "{:g}".format)


PEERS = (
    Peer(
        "two-proportion z test at every scrape",
        lambda data, alpha: peers.two_proportions(data.tokens, alpha, MARGIN / 100),
        lambda _: 0.05,
        ALPHAS,
        "α {:.0e}".format,
    ),
    Peer(
        "mSPRT, binomial variance",
        lambda data, alpha: peers.mixture_sprt(data.tokens, alpha, MARGIN / 100),
        lambda _: 0.05,
        ALPHAS,
        "α {:.0e}".format,
    ),
    *_windowed("Argo Rollouts' step: 5 × 1 min", _argo, interval=1, count=5, limit=0),
    *_windowed("Argo Rollouts' background: 8 × 5 min", _argo, interval=5, count=8, limit=3),
    *_windowed("Flagger: 25 steps of 1 min", _flagger),
    Peer(
        "Kayenta at 30 and 60 min",
        lambda data, ratio: peers.kayenta(data.canary, data.stable, ratio, KAYENTA_LOOKS),
        lambda _: 1.0,
        RATIOS,
        "ratio {:.3f}".format,
    ),
)


@dataclass(frozen=True, slots=True)
class Score:
    """Of equal or of bad canaries: shares 0..1, and the median minute of those."""

    aborted: float
    abort_minute: float | None
    promoted: float
    promotion_minute: float | None


@dataclass(frozen=True, slots=True)
class Result:
    """One judge in one cell; `bad` None: not tried."""

    judge: str
    setting: str
    equal: Score
    bad: Score | None


def score(ends: Ends) -> Score:
    """Shares and median minutes of many rollouts' ends."""
    return Score(*_share(ends.aborted), *_share(ends.promoted))


def _share(minutes: np.ndarray) -> tuple[float, float | None]:
    ended = minutes[minutes < NEVER]
    return len(ended) / len(minutes), float(np.median(ended)) if len(ended) else None


def of_calls(calls: list[Calls]) -> Ends:
    """What the shipped judge's calls make of each rollout: the first one ends it."""
    times = [[NEVER if each is None else each for each in (one.regression, one.proven)] for one in calls]
    aborted, promoted = np.array(times, dtype=float).T
    return peers.race(aborted, promoted)


def of_peers(equal: Data, bad: Data) -> Iterator[tuple[Result, Result | None]]:
    """Each peer at its default, and tuned to 5 % false alarms on these very rollouts: better than anyone could who does
    not know beforehand which cell is his."""
    for peer in PEERS:
        default = peer.default(equal)
        dial = peer.dial[peer.dial >= default] if peer.dial is GAPS else peer.dial
        setting = peers.tuned(partial(peer.ends, equal), dial)
        tuned = None if setting is None else _result(peer, setting, equal, bad)
        yield _result(peer, default, equal, bad), tuned


def _result(peer: Peer, setting: float, equal: Data, bad: Data) -> Result:
    return Result(peer.name, peer.shown(setting), *(score(peer.ends(data, setting)) for data in (equal, bad)))


def data(rows: list[tuple[peers.Rows, peers.Rows]], relative: bool) -> Data:
    """Of many rollouts' (token rows, compared rows)."""
    tokens, compared = (peers.stacked(list(each)) for each in zip(*rows, strict=True))
    return Data(tokens, *compared.minutes(), relative)
