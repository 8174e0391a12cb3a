"""Judges a canary against stable: evidence and margins in, a verdict with its intervals out. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from specfleet.judgement.forecast import Reach, blocks_until
from specfleet.judgement.ratios import AT_FIRST_POSITION, RATIOS, Ratio
from specfleet.judgement.sequence import half_width, no_event_bound, t_quantile, tuned_rho2
from specfleet.judgement.spread import Pods, Totals, concentration, spread_of
from specfleet.judgement.validity import Obstacle, loads, under_like_load, unlike_loads
from specfleet.judgement.verdict import Metric, MetricVerdict, Outcome, Verdict
from specfleet.telemetry.evidence import EMPTY, Arm, Evidence, PairedBlock, pool

ALPHA = 0.05
POWER = 0.84  # standard errors above the bound for it to clear the margin four times in five (Φ(0.84) = 0.8)
LUCK = 0.85  # the same of measured pods: a little more, since metrics that do not vary as one must all be lucky
UNCOMPARED = "the arms draft differently, or not at all"
HIDDEN = "vLLM counts draft tokens that it does not verify, or accepts them by a rule"

Blocks = Sequence[PairedBlock]
Row = tuple[float, float, float]  # a block: its weight, and by it the ratio of the canary and that of stable


@dataclass(frozen=True, slots=True)
class Policy:
    """Margins (≥ 0, how much worse a canary may be) and how much evidence a verdict needs.

    `ttft_limit` is the user's, in seconds to the first token; without one that metric is not judged. `scheduled` says
    that the proposal length follows the batch, so that acceptance is compared at the first position only, and `hidden`
    that the canary's counters do not show what its drafts are worth.
    """

    speed_percent: float  # of stable's speed
    acceptance_points: float
    error_points: float
    max_blocks: int  # longest analysis ÷ block length; tells the interval where to be tightest
    alpha: float = ALPHA  # probability of a false alarm over the whole rollout, and of each metric's false proof
    min_blocks: int = 8  # below that a standard deviation is a guess
    min_requests: int = 30  # finished, per arm
    ttft_points: float = 2
    ttft_limit: float | None = None
    scheduled: bool = False
    hidden: bool = False

    def margin(self, metric: Metric) -> float:
        """The metric's margin in its own unit."""
        return {
            Metric.SPEED: self.speed_percent,
            Metric.ACCEPTANCE: self.acceptance_points,
            Metric.ERRORS: self.error_points,
            Metric.TTFT: self.ttft_points,
        }[metric]

    def ratio(self, metric: Metric) -> Ratio:
        """What the metric is read from."""
        return AT_FIRST_POSITION if self.scheduled and metric is Metric.ACCEPTANCE else RATIOS[metric]


def judge(evidence: Evidence, acceptance_comparable: bool, policy: Policy) -> Verdict:
    """One verdict per metric. Acceptance is compared only where method, proposal length and schedule are equal.

    May be asked after every block: the intervals hold at all looks together.
    """
    comparable = (
        acceptance_comparable and not policy.hidden and (not evidence.blocks or _any_speculation(evidence.pods))
    )
    judged = [metric for metric in Metric if metric is not Metric.TTFT or policy.ttft_limit is not None]
    failing = len(judged) if comparable else len(judged) - 1
    totals = {arm: pool(evidence.pods[arm]) for arm in (Arm.CANARY, Arm.STABLE)}
    matched = under_like_load(evidence.blocks)
    unlike = _unmatched(evidence, matched, totals, policy)
    return Verdict(
        tuple(
            _judge(metric, evidence, (matched, unlike), totals, policy, failing)
            if comparable or metric is not Metric.ACCEPTANCE
            else _held(metric, policy, 0, Outcome.NOT_COMPARABLE, HIDDEN if policy.hidden else UNCOMPARED)
            for metric in judged
        )
    )


def resolvable_margin(
    canary_pods: int, stable_pods: int, metric: Metric, evidence: Evidence = EMPTY, policy: Policy | None = None
) -> float:
    """The smallest margin, in the metric's unit, at which an equal canary is proven four times in five.

    t·s·√(1/C+1/S) for the bound, the interval's half-width after the longest analysis, and what the luck of this
    canary's pods takes: 0.84·s·√(1/C+1/S). Before there is `evidence`, s is the shipped spread and the
    half-width unknown: the margin that no traffic makes smaller. Infinite without pods on either side.
    """
    if canary_pods < 1 or stable_pods < 1:
        return math.inf
    ratio = policy.ratio(metric) if policy else RATIOS[metric]
    share = math.sqrt(1 / canary_pods + 1 / stable_pods)
    if not any(ratio.known(tally) for tally in evidence.pods[Arm.STABLE].values()):
        return (t_quantile(1 - ALPHA, ratio.spread_freedom + stable_pods - 1) + POWER) * ratio.spread * share
    spread = spread_of(ratio, evidence.pods, {arm: pool(evidence.pods[arm]) for arm in Arm})
    luck = max(POWER * spread.assumed, t_quantile(LUCK, max(spread.measured_freedom, 1)) * spread.measured) * share
    noise, width = _noise(ratio, evidence, share, policy) if policy else (0.0, 0.0)
    return t_quantile(1 - ALPHA, spread.freedom) * spread.assumed * share + width + math.hypot(luck, noise)


def _noise(ratio: Ratio, evidence: Evidence, share: float, policy: Policy) -> tuple[float, float]:
    """(how far the estimate is off four times in five, half-width of its interval) after the longest analysis, if the
    last step's pods do what those of `evidence` did; zeros before it is enough to tell."""
    rows = _informing(ratio, under_like_load(evidence.blocks) if ratio.like_load else evidence.blocks)
    if len(rows) < policy.min_blocks:
        return 0.0, 0.0
    _, sigma = _effect(ratio, rows)
    sigma *= share / math.sqrt(sum(concentration(ratio, evidence.pods[arm]) for arm in Arm))
    blocks = max(policy.min_blocks, policy.max_blocks)
    return POWER * sigma / math.sqrt(blocks), half_width(sigma, blocks, _tightest(policy, policy.alpha), policy.alpha)


def _any_speculation(pods: Pods) -> bool:
    return any(tally.speculating for arm in pods.values() for tally in arm.values())


def _judge(
    metric: Metric,
    evidence: Evidence,
    matched: tuple[Blocks, Obstacle],
    totals: Totals,
    policy: Policy,
    failing: int,
) -> MetricVerdict:
    """`matched` are the blocks under like load, and why they are not enough."""
    ratio = policy.ratio(metric)
    rows = _informing(ratio, matched[0] if ratio.like_load else evidence.blocks)
    obstacle = _untimed(metric, evidence, policy) or _obstacle(ratio, evidence, totals, len(rows), policy)
    if ratio.like_load and (obstacle is None or obstacle[0] is Outcome.INSUFFICIENT_DATA):
        obstacle = matched[1] or obstacle
    if obstacle is not None:
        return _held(metric, policy, len(rows), *obstacle)
    estimate, reach = _interval(ratio, rows, evidence.pods, totals, policy)
    margin, alphas = policy.margin(metric), (policy.alpha, policy.alpha / failing)
    lower, upper = estimate - reach(alphas[0], len(rows)), estimate + reach(alphas[1], len(rows))
    hint = ratio.hint
    if metric is Metric.TTFT:
        hint = f" (+ is fewer beyond {_bound(evidence.bound or 0.0, policy.ttft_limit or 0.0)})"
    message = (
        f"{metric} {_signed(estimate)} {ratio.unit} [{_signed(lower)}, {_signed(upper)}]{hint} "
        f"against a margin of {margin:g}{' %' if ratio.unit == '%' else ''}, {len(rows)} blocks"
    )
    outcome = _outcome(lower, upper, margin)
    more = 0.0
    if outcome is Outcome.INCONCLUSIVE:  # blocks in which an arm is idle take their time too
        more = blocks_until(estimate, margin, reach, alphas, len(rows)) * len(evidence.blocks) / len(rows)
    return MetricVerdict(metric, outcome, estimate, lower, upper, margin, ratio.unit, len(rows), message, more)


def _bound(bound: float, limit: float) -> str:
    """The bound that was used really, in seconds, and what it stands for."""
    return f"{bound:g} s" if bound == limit else f"{bound:g} s, the bucket below {limit:g} s"


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

    Each weighs D_canary·D_stable ÷ (D_canary + D_stable), in *both* arms (Mantel and Haenszel's weights). An arm's own
    denominator would make the ratio of the arm whose share grows that of the later hours, and drift a difference.
    By columns, since a thousand deployments are judged each block.
    """
    arms = [[block.canary for block in blocks], [block.stable for block in blocks]]
    columns = [map(read, arm) for arm in arms for read in (ratio.numerator, ratio.denominator, ratio.trials)]
    return [
        (below_c * (part := below_s / (below_c + below_s)), above_c * part, above_s * (1 - part))
        for above_c, below_c, trials_c, above_s, below_s, trials_s in zip(*columns, strict=True)
        if below_c and trials_c and below_s and trials_s  # no counter is negative
    ]


def _untimed(metric: Metric, evidence: Evidence, policy: Policy) -> Obstacle:
    """Times that were read against no bound, or against one beyond the limit of now, say nothing of it."""
    if metric is not Metric.TTFT or not evidence.blocks or policy.ttft_limit is None:
        return None
    if evidence.bound is not None and evidence.bound <= policy.ttft_limit:
        return None
    return Outcome.NO_TRAFFIC, f"no first token was timed within {policy.ttft_limit:g} s in {_blocks(evidence)}"


def _obstacle(ratio: Ratio, evidence: Evidence, totals: Totals, blocks: int, policy: Policy) -> Obstacle:
    if evidence.blocks:
        for arm, tally in totals.items():
            if not ratio.known(tally):
                return Outcome.NO_TRAFFIC, f"no {ratio.traffic} on {arm} in {_blocks(evidence)}"
    if blocks < policy.min_blocks:
        return Outcome.INSUFFICIENT_DATA, f"{blocks} of {policy.min_blocks} blocks"
    for arm, tally in totals.items():
        if ratio.requests(tally) < policy.min_requests:
            return Outcome.INSUFFICIENT_DATA, f"{ratio.requests(tally):.0f} of {policy.min_requests} requests on {arm}"
    found = (need(totals[Arm.CANARY], totals[Arm.STABLE]) for need in ratio.needs)
    return next((obstacle for obstacle in found if obstacle), None)


def _unmatched(evidence: Evidence, matched: Blocks, totals: Totals, policy: Policy) -> Obstacle:
    """Too few blocks under like load, or under one that is unlike in all of them together."""
    if len(matched) >= policy.min_blocks:
        return unlike_loads(loads(matched, Arm.CANARY), loads(matched, Arm.STABLE))
    unlike = unlike_loads(totals[Arm.CANARY], totals[Arm.STABLE])
    if len(evidence.blocks) < policy.min_blocks or unlike is None:
        return None
    return Outcome.INSUFFICIENT_OVERLAP, f"{unlike[1]}, about alike in {len(matched)} of {_blocks(evidence)}"


def _blocks(evidence: Evidence) -> str:
    return f"{len(evidence.blocks)} block{'' if len(evidence.blocks) == 1 else 's'}"


def _interval(ratio: Ratio, rows: list[Row], pods: Pods, totals: Totals, policy: Policy) -> tuple[float, Reach]:
    """The estimate, and how far one end of its interval lies from it after so many blocks: an end that holds with
    1 − alpha. The lower end is taken with `alpha`; the upper one, on which any of several metrics may raise the alarm,
    with alpha ÷ their number."""
    estimate, sigma = _effect(ratio, rows)
    trials = min(map(ratio.trials, totals.values())) / len(rows)
    spread = spread_of(ratio, pods, totals)
    share = math.sqrt(concentration(ratio, pods[Arm.CANARY]) + concentration(ratio, pods[Arm.STABLE]))

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

    Delta method: a block's influence on a weighted ratio R = Σw·r ÷ Σw is w·(r − R) ÷ mean(w). Taken over both arms of
    the same block, at one weight, drift that both see (another prompt mix at another hour) cancels.
    """
    weight, above_c, above_s = map(fmean, zip(*rows, strict=True))
    canary, stable = above_c / weight, above_s / weight
    estimate, by_canary, by_stable = ratio.difference(canary, stable)
    # Influences have mean 0. Squared by hand: `statistics` takes five times as long, to be exact beyond need.
    squares = [(by_canary * (c - canary * w) + by_stable * (s - stable * w)) ** 2 for w, c, s in rows]
    return estimate, math.sqrt(math.fsum(squares) / (len(rows) - 1)) / weight
