"""Judges a canary against stable: evidence and margins in, a verdict with its intervals out. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from specfleet.judgement.forecast import Reach, blocks_until
from specfleet.judgement.ratios import RATIOS, Ratio
from specfleet.judgement.sequence import half_width, no_event_bound, t_quantile, tuned_rho2
from specfleet.judgement.verdict import Metric, MetricVerdict, Outcome, Verdict
from specfleet.telemetry.counters import Tally
from specfleet.telemetry.derived import mean_batch, request_rate
from specfleet.telemetry.evidence import EMPTY, Arm, Evidence, PairedBlock, pool

ALPHA = 0.05
POWER = 0.84  # standard errors above the bound for it to clear the margin four times in five (Φ(0.84) = 0.8)
LUCK = 0.85  # the same of measured pods: a little more, since metrics that do not vary as one must all be lucky
DOUBT = 1.5  # a measured spread so many times the shipped one: the fleet is not like that, the shipped one counts half
MAX_LOAD_RATIO = math.sqrt(2)  # a half-bin of log2 batch size: step time hardly moves within one

Pods = Mapping[Arm, Mapping[str, Tally]]
Totals = Mapping[Arm, Tally]  # each arm's pods pooled
Row = tuple[float, float, float, float]  # a block: the ratio's numerator and denominator of the canary, then of stable


@dataclass(frozen=True, slots=True)
class Policy:
    """Margins (≥ 0, how much worse a canary may be) and how much evidence a verdict needs."""

    speed_percent: float  # of stable's speed
    acceptance_points: float
    error_points: float
    max_blocks: int  # longest analysis ÷ block length; tells the interval where to be tightest
    alpha: float = ALPHA  # probability of a false alarm over the whole rollout, and of each metric's false proof
    min_blocks: int = 8  # below that a standard deviation is a guess
    min_requests: int = 30  # finished, per arm

    def margin(self, metric: Metric) -> float:
        """The metric's margin in its own unit."""
        return {
            Metric.SPEED: self.speed_percent,
            Metric.ACCEPTANCE: self.acceptance_points,
            Metric.ERRORS: self.error_points,
        }[metric]


def judge(evidence: Evidence, acceptance_comparable: bool, policy: Policy) -> Verdict:
    """One verdict per metric. Acceptance is compared only where method, proposal length and schedule are equal.

    May be asked after every block: the intervals hold at all looks together.
    """
    comparable = acceptance_comparable and (not evidence.blocks or _any_speculation(evidence.pods))
    failing = len(Metric) if comparable else len(Metric) - 1
    totals = {arm: pool(evidence.pods[arm]) for arm in (Arm.CANARY, Arm.STABLE)}
    return Verdict(
        tuple(
            _judge(metric, evidence, totals, policy, failing)
            if comparable or metric is not Metric.ACCEPTANCE
            else _held(metric, policy, 0, Outcome.NOT_COMPARABLE, "the arms draft differently, or not at all")
            for metric in Metric
        )
    )


def resolvable_margin(
    canary_pods: int, stable_pods: int, metric: Metric, evidence: Evidence = EMPTY, policy: Policy | None = None
) -> float:
    """The smallest margin, in the metric's unit, at which an equal canary is proven four times in five.

    t·s·√(1/C+1/S) for the bound, the interval's half-width after the longest analysis, and what the luck of this
    canary's pods takes: 0.84·s·√(1/C+1/S). Before there is `evidence` of stable's pods, s is the shipped spread and the
    half-width unknown: the margin that no traffic makes smaller. Infinite without pods on either side.
    """
    if canary_pods < 1 or stable_pods < 1:
        return math.inf
    ratio, share = RATIOS[metric], math.sqrt(1 / canary_pods + 1 / stable_pods)
    known = [tally for tally in evidence.pods[Arm.STABLE].values() if ratio.known(tally)]
    if not known:
        return (t_quantile(1 - ALPHA, ratio.spread_freedom + stable_pods - 1) + POWER) * ratio.spread * share
    spread = _spread(ratio, evidence.pods[Arm.STABLE], pool(evidence.pods[Arm.STABLE]))
    luck = max(POWER * spread.assumed, t_quantile(LUCK, max(len(known) - 1, 1)) * spread.measured) * share
    noise, width = _noise(ratio, evidence, share, policy) if policy else (0.0, 0.0)
    return t_quantile(1 - ALPHA, spread.freedom) * spread.assumed * share + width + math.hypot(luck, noise)


def pod_spread(metric: Metric, pods: Mapping[str, Tally]) -> float | None:
    """By how much pods of one revision were seen to differ: a standard deviation in the metric's unit; None where fewer
    than two of them have the metric."""
    ratio = RATIOS[metric]
    known = {pod: tally for pod, tally in pods.items() if ratio.known(tally)}
    return _spread(ratio, known, pool(known)).measured if len(known) > 1 else None


def _noise(ratio: Ratio, evidence: Evidence, share: float, policy: Policy) -> tuple[float, float]:
    """(how far the estimate is off four times in five, half-width of its interval) after the longest analysis, if the
    last step's pods do what those of `evidence` did; zeros before it is enough to tell."""
    rows = _informing(ratio, evidence.blocks)
    if len(rows) < policy.min_blocks:
        return 0.0, 0.0
    _, sigma = _effect(ratio, rows)
    sigma *= share / math.sqrt(sum(_concentration(ratio, evidence.pods[arm]) for arm in Arm))
    blocks = max(policy.min_blocks, policy.max_blocks)
    return POWER * sigma / math.sqrt(blocks), half_width(sigma, blocks, _tightest(policy, policy.alpha), policy.alpha)


def _any_speculation(pods: Pods) -> bool:
    return any(tally.speculating for arm in pods.values() for tally in arm.values())


def _judge(metric: Metric, evidence: Evidence, totals: Totals, policy: Policy, failing: int) -> MetricVerdict:
    ratio = RATIOS[metric]
    rows = _informing(ratio, evidence.blocks)
    obstacle = _obstacle(ratio, evidence, totals, len(rows), policy)
    if obstacle is not None:
        return _held(metric, policy, len(rows), *obstacle)
    estimate, reach = _interval(ratio, rows, evidence.pods, totals, policy)
    margin, alphas = policy.margin(metric), (policy.alpha, policy.alpha / failing)
    lower, upper = estimate - reach(alphas[0], len(rows)), estimate + reach(alphas[1], len(rows))
    message = (
        f"{metric} {_signed(estimate)} {ratio.unit} [{_signed(lower)}, {_signed(upper)}]{ratio.hint} "
        f"against a margin of {margin:g}{' %' if ratio.unit == '%' else ''}, {len(rows)} blocks"
    )
    outcome = _outcome(lower, upper, margin)
    more = 0.0
    if outcome is Outcome.INCONCLUSIVE:  # blocks in which an arm is idle take their time too
        more = blocks_until(estimate, margin, reach, alphas, len(rows)) * len(evidence.blocks) / len(rows)
    return MetricVerdict(metric, outcome, estimate, lower, upper, margin, ratio.unit, len(rows), message, more)


def _signed(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}"  # + 0.0: there is no difference of -0.0


def _outcome(lower: float, upper: float, margin: float) -> Outcome:
    if upper < -margin:
        return Outcome.REGRESSION
    return Outcome.NON_INFERIOR if lower > -margin else Outcome.INCONCLUSIVE


def _held(metric: Metric, policy: Policy, blocks: int, outcome: Outcome, why: str) -> MetricVerdict:
    margin, unit = policy.margin(metric), RATIOS[metric].unit
    return MetricVerdict(metric, outcome, None, None, None, margin, unit, blocks, f"{metric}: {why}")


def _informing(ratio: Ratio, blocks: Sequence[PairedBlock]) -> list[Row]:
    """The blocks in which both arms did something: one of an idle arm would count as a look without a surprise.

    By columns, since a thousand deployments are judged each block.
    """
    arms = [[block.canary for block in blocks], [block.stable for block in blocks]]
    columns = [map(read, arm) for arm in arms for read in (ratio.numerator, ratio.denominator, ratio.trials)]
    return [
        (above_c, below_c, above_s, below_s)
        for above_c, below_c, trials_c, above_s, below_s, trials_s in zip(*columns, strict=True)
        if below_c > 0 and trials_c > 0 and below_s > 0 and trials_s > 0
    ]


def _obstacle(
    ratio: Ratio, evidence: Evidence, totals: Totals, blocks: int, policy: Policy
) -> tuple[Outcome, str] | None:
    if evidence.blocks:
        for arm, tally in totals.items():
            if not ratio.known(tally):
                return Outcome.NO_TRAFFIC, f"no {ratio.traffic} on {arm} in {len(evidence.blocks)} blocks"
    if blocks < policy.min_blocks:
        return Outcome.INSUFFICIENT_DATA, f"{blocks} of {policy.min_blocks} blocks"
    for arm, tally in totals.items():
        if ratio.requests(tally) < policy.min_requests:
            return Outcome.INSUFFICIENT_DATA, f"{ratio.requests(tally):.0f} of {policy.min_requests} requests on {arm}"
    return _unlike_loads(totals[Arm.CANARY], totals[Arm.STABLE]) if ratio.at_matched_load else None


def _unlike_loads(canary: Tally, stable: Tally) -> tuple[Outcome, str] | None:
    """A canary pod that is given less to do runs smaller batches, and would look faster than it is.

    Either likeness will do. Where clients wait for answers the batch is what they set. Where requests arrive by
    themselves their rate is, and the batch follows from the speed (Little's law): a canary that is half as fast again
    runs smaller batches *because* it is faster, and that must not keep it from being judged.
    """
    batches, rates = (mean_batch(canary), mean_batch(stable)), (request_rate(canary), request_rate(stable))
    if _alike(*batches) or _alike(*rates):
        return None
    if batches[0] is None or batches[1] is None:
        return Outcome.INSUFFICIENT_OVERLAP, "mean batch unknown"
    return Outcome.INSUFFICIENT_OVERLAP, f"mean batch {batches[0]:.1f} on canary, {batches[1]:.1f} on stable"


def _alike(canary: float | None, stable: float | None) -> bool:
    if not canary or not stable:
        return False
    return 1 / MAX_LOAD_RATIO <= canary / stable <= MAX_LOAD_RATIO


def _interval(ratio: Ratio, rows: list[Row], pods: Pods, totals: Totals, policy: Policy) -> tuple[float, Reach]:
    """The estimate, and how far one end of its interval lies from it after so many blocks: an end that holds with
    1 − alpha. The lower end is taken with `alpha`; the upper one, on which any of several metrics may raise the alarm,
    with alpha ÷ their number."""
    estimate, sigma = _effect(ratio, rows)
    trials = min(map(ratio.trials, totals.values())) / len(rows)
    spread = _spread(ratio, pods[Arm.STABLE], totals[Arm.STABLE])
    share = math.sqrt(_concentration(ratio, pods[Arm.CANARY]) + _concentration(ratio, pods[Arm.STABLE]))

    def reach(alpha: float, blocks: int) -> float:
        sequence = half_width(sigma, blocks, _tightest(policy, alpha), alpha)
        # Without variance the sequence would be sure of everything after a few blocks; it may not be surer than the
        # number of trials allows.
        return (
            max(sequence, 100 * no_event_bound(alpha, trials * blocks))
            + t_quantile(1 - alpha, spread.freedom) * spread.assumed * share
        )

    return estimate, reach


def _tightest(policy: Policy, alpha: float) -> float:
    """rho² of the sequence. The decision is expected within the first quarter of the longest analysis: a good canary
    should not need all of it."""
    return tuned_rho2(alpha, max(policy.min_blocks, policy.max_blocks / 4))


def _effect(ratio: Ratio, rows: list[Row]) -> tuple[float, float]:
    """The difference between the arms in the metric's unit, and the standard deviation of one block's share in it.

    Delta method: a block's influence on a pooled ratio R = ΣA ÷ ΣD is (A − R·D) ÷ mean(D). Taken over both arms of
    the same block, drift that both see (another prompt mix at another hour) cancels.
    """
    above_c, below_c, above_s, below_s = map(fmean, zip(*rows, strict=True))
    canary, stable = above_c / below_c, above_s / below_s
    estimate, by_canary, by_stable = ratio.difference(canary, stable)
    c, s = by_canary / below_c, by_stable / below_s
    # Influences have mean 0. Squared by hand: `statistics` takes five times as long, to be exact beyond need.
    squares = [(c * (ac - canary * dc) + s * (as_ - stable * ds)) ** 2 for ac, dc, as_, ds in rows]
    return estimate, math.sqrt(math.fsum(squares) / (len(rows) - 1))


@dataclass(frozen=True, slots=True)
class _Spread:
    """How pods of one revision differ: a standard deviation in the metric's unit."""

    assumed: float
    freedom: float  # its degrees of freedom
    measured: float  # without the shipped one; 0 if only one pod was measured


def _spread(ratio: Ratio, stable: Mapping[str, Tally], total: Tally) -> _Spread:
    """Measured on stable's pods, weighted by what each did, and drawn towards the shipped spread as if that had been
    measured on `spread_freedom` + 1 pods: with one stable pod nothing else is known. One that the pods contradict is
    believed less: it would make the bound too short (pods that differ by 3.4 points raised 6 to 9 % false alarms).
    """
    tallies = [tally for tally in stable.values() if ratio.known(tally)]
    pooled, work = ratio.value(total), sum(map(ratio.denominator, tallies))
    squares = sum(ratio.denominator(t) / work * ratio.difference(ratio.value(t), pooled)[0] ** 2 for t in tallies)
    measured = len(tallies) - 1
    # The measured variance is squares · n ÷ (n − 1) and has n − 1 degrees of freedom.
    alone = math.sqrt(squares * len(tallies) / measured) if measured else 0.0
    shipped = ratio.spread_freedom / (2 if alone > DOUBT * ratio.spread else 1)
    freedom = shipped + measured
    variance = (shipped * ratio.spread**2 + measured * alone**2) / freedom
    return _Spread(math.sqrt(variance), freedom, alone)


def _concentration(ratio: Ratio, pods: Mapping[str, Tally]) -> float:
    """Σ share², which is 1/n for n equally busy pods: the variance of a pooled ratio in units of one pod's."""
    weights = [ratio.denominator(tally) for tally in pods.values()]
    return sum(weight * weight for weight in weights) / sum(weights) ** 2
