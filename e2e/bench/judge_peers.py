"""How others decide: two sequential tests, and the rules that Argo Rollouts, Flagger and Kayenta document.

Everything is an array [run, tick] or [run, minute]; better is positive; in points of acceptance or percent of speed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from bench.judge_world import TICK_SECONDS, TICKS_PER_BLOCK, World

NEVER = np.inf
TYPICAL = 0.03  # the difference that the mSPRT's mixture expects
Rows = tuple[np.ndarray, ...]  # canary's numerator and denominator, then stable's; [tick]
FIRST_LOOK = 4  # ticks: before a minute has passed there is no rate


@dataclass(frozen=True, slots=True)
class Series:
    """Counters of many rollouts, pooled over each arm's pods: what a ratio is made of, tick by tick."""

    canary: tuple[np.ndarray, np.ndarray]  # numerator, denominator
    stable: tuple[np.ndarray, np.ndarray]

    def minutes(self) -> tuple[np.ndarray, np.ndarray]:
        """The ratio of either arm, minute by minute, as a query over the last minute gives it; NaN: 0 ÷ 0."""
        return _by_minute(*self.canary), _by_minute(*self.stable)

    def totals(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Sums since the start: (canary's numerator, denominator, stable's numerator, denominator)."""
        a, b, c, d = (np.cumsum(each, axis=1, dtype=float) for each in (*self.canary, *self.stable))
        return a, b, c, d


def series(world: World, speed: bool = False) -> Rows:
    """The four rows of one rollout for `Series`. A scrape that fails hands what it missed to the next one."""
    above = world.outputs + world.accepted if speed else world.accepted
    below = world.seconds if speed else world.drafted
    rows = [_seen(each, world.answered) for each in (above, below)]
    arms = (slice(world.cell.stable, None), slice(0, world.cell.stable))
    return tuple(row[arm].sum(axis=0) for arm in arms for row in rows)


def stacked(rows: list[Rows]) -> Series:
    """Many rollouts' rows as one."""
    a, b, c, d = (np.stack(each) for each in zip(*rows, strict=True))
    return Series((a, b), (c, d))


def _seen(counts: np.ndarray, answered: np.ndarray) -> np.ndarray:
    """Per tick what a counter has moved by as far as a scraper knows: nothing without an answer, then all of it."""
    if answered.all():
        return counts
    total = np.cumsum(counts, axis=1, dtype=float)
    known = np.maximum.accumulate(np.where(answered, total, 0.0), axis=1)
    return np.diff(known, axis=1, prepend=0.0)


def _by_minute(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    shape = (len(above), -1, TICKS_PER_BLOCK)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(above.reshape(shape).sum(axis=2) / below.reshape(shape).sum(axis=2))


@dataclass(frozen=True, slots=True)
class Ends:
    """How each rollout ended: the minute of the abort and of the promotion; NEVER for the one that did not happen."""

    aborted: np.ndarray
    promoted: np.ndarray


def first(hits: np.ndarray, minutes: float = 1.0) -> np.ndarray:
    """The time of each row's first True, in minutes of so many a column; NEVER without one."""
    return np.where(hits.any(axis=1), (hits.argmax(axis=1) + 1) * minutes, NEVER)


def race(aborted: np.ndarray, promoted: np.ndarray) -> Ends:
    """What comes first ends the rollout; of two at once the abort."""
    return Ends(
        aborted=np.where(aborted <= promoted, aborted, NEVER), promoted=np.where(promoted < aborted, promoted, NEVER)
    )


def windows(
    gaps: np.ndarray, allowed: float, failures: int, passes: int | None, measurements: int | None
) -> np.ndarray:
    """The measurement, counted from 1, at which a rollout is aborted (negative) or promoted (positive); 0: neither.

    A measurement fails if its gap is not at least −allowed: NaN fails, as a comparison with it is false. The rollout
    is aborted when `failures` have failed, and promoted after `passes` good ones or after `measurements` of any kind.
    """
    with np.errstate(invalid="ignore"):
        failed = ~(gaps >= -allowed)
    bad = np.cumsum(failed, axis=1)
    good = np.cumsum(~failed, axis=1)
    done = good >= passes if passes is not None else np.arange(1, gaps.shape[1] + 1)[None, :] >= (measurements or 0)
    ends = race(first(bad >= failures), first(done & (bad < failures)))
    return np.where(ends.aborted < NEVER, -ends.aborted, np.where(ends.promoted < NEVER, ends.promoted, 0))


def _ends(measurement: np.ndarray, minutes: float) -> Ends:
    return Ends(
        aborted=np.where(measurement < 0, -measurement * minutes, NEVER),
        promoted=np.where(measurement > 0, measurement * minutes, NEVER),
    )


def argo(gaps: np.ndarray, allowed: float, interval: int, count: int, failure_limit: int) -> Ends:
    """AnalysisRun: a measurement every `interval` minutes over as long; Failed once *more than* failureLimit failed;
    Successful after `count`. Source: argo-rollouts docs/features/analysis.md, pkg/apis AnalysisTemplate (failureLimit
    defaults to 0)."""
    spans = gaps.shape[1] // interval
    by_interval = gaps[:, : spans * interval].reshape(len(gaps), spans, interval).mean(axis=2)
    return _ends(windows(by_interval, allowed, failure_limit + 1, None, count), interval)


def flagger(gaps: np.ndarray, allowed: float, threshold: int, steps: int) -> Ends:
    """Canary analysis: every minute the last one; rolled back at `threshold` failed checks in all (a good one clears
    none); each good check is one step of the weight, `steps` = maxWeight ÷ stepWeight of them promote.
    Source: flagger docs/gitbook/usage/deployment-strategies.md (threshold 10, maxWeight 50, stepWeight 2)."""
    return _ends(windows(gaps, allowed, threshold, steps, None), 1.0)


def kayenta(canary: np.ndarray, stable: np.ndarray, ratio: float, looks: tuple[int, ...]) -> Ends:
    """NetflixACAJudge: Low if the whole 98 % interval of the Hodges-Lehmann shift lies below −¼ of its estimate and
    mean(canary) ÷ mean(stable) is below `ratio` (allowedDecrease; 1: any). One metric: score 0 or 100. Judged at each
    of `looks`, in minutes, over all points so far; the last one promotes.
    Source: kayenta MannWhitneyClassifier, NetflixACAJudge; the interval is R's wilcox.test(exact = FALSE)."""
    low = np.stack([kayenta_low(canary[:, :look], stable[:, :look], ratio) for look in looks], axis=1)
    at = np.array(looks, dtype=float)
    aborted = np.where(low.any(axis=1), at[low.argmax(axis=1)], NEVER)
    return race(aborted, np.full(len(low), at[-1]))


def kayenta_low(canary: np.ndarray, stable: np.ndarray, ratio: float, confidence: float = 0.98) -> np.ndarray:
    """Whether each row's metric is classified as Low."""
    upper, estimate, means = _shift(canary, stable, confidence)
    return np.asarray((upper < -0.25 * np.abs(estimate)) & (means < ratio))


def _shift(canary: np.ndarray, stable: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(upper bound and Hodges-Lehmann estimate of canary − stable, ratio of means) of each row."""
    n, m = canary.shape[1], stable.shape[1]
    z = NormalDist().inv_cdf(1 - (1 - confidence) / 2)
    rank = int(n * m / 2 + z * np.sqrt(n * m * (n + m + 1) / 12))
    uppers, middles = [], []
    for one, other in zip(canary, stable, strict=True):
        pairs = np.partition(np.subtract.outer(one, other).ravel(), (n * m // 2, min(rank, n * m - 1)))
        uppers.append(pairs[min(rank, n * m - 1)])
        middles.append(pairs[n * m // 2])
    return np.array(uppers), np.array(middles), canary.mean(axis=1) / stable.mean(axis=1)


def two_proportions(data: Series, alpha: float, margin: float) -> Ends:
    """The z test of two pooled shares at every tick, as if each look were the only one: alarm where the canary is worse
    at one-sided `alpha`, promotion where it is proven not to be worse by `margin`."""
    difference, error = _difference(data)
    z = -NormalDist().inv_cdf(alpha)
    return _looked(difference < -z * error, difference + margin > z * error)


def mixture_sprt(data: Series, alpha: float, margin: float) -> Ends:
    """mSPRT (Johari, Koomen, Pekelis, Walsh): a normal mixture over the difference, variance that of tokens which are
    independent. Alarm where its always-valid interval is below 0, promotion where it is above −margin."""
    difference, error = _difference(data)
    variance, typical = error**2, TYPICAL**2
    with np.errstate(invalid="ignore", divide="ignore"):
        logarithm = np.log((variance + typical) / variance) - 2 * np.log(alpha)
        width = np.sqrt(variance * (variance + typical) / typical * logarithm)
    return _looked(difference < -width, difference + margin > width)


def _difference(data: Series) -> tuple[np.ndarray, np.ndarray]:
    """The difference of the shares since the start, as a fraction, and its binomial standard error. NaN before both
    have had a request: no comparison with it is true."""
    a, b, c, d = data.totals()
    with np.errstate(invalid="ignore", divide="ignore"):
        pooled = (a + c) / (b + d)
        return a / b - c / d, np.sqrt(np.maximum(pooled * (1 - pooled), 1e-9) * (1 / b + 1 / d))


def _looked(alarm: np.ndarray, proof: np.ndarray) -> Ends:
    alarm, proof = alarm.copy(), proof.copy()
    alarm[:, : FIRST_LOOK - 1] = proof[:, : FIRST_LOOK - 1] = False
    return race(*(first(hits, TICK_SECONDS / 60) for hits in (alarm, proof)))


Rule = Callable[[float], Ends]


def tuned(rule: Rule, settings: np.ndarray, limit: float = 0.05) -> float | None:
    """The first of `settings`, mildest last, at which at most `limit` of these (equal) rollouts are aborted."""
    place = bisect_left(settings.tolist(), True, key=lambda one: bool(np.mean(rule(one).aborted < NEVER) <= limit))
    return float(settings[place]) if place < len(settings) else None
