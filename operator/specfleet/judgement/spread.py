"""How far pods of one revision differ: measured where they are several, and what is assumed before. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specfleet.judgement.ratios import RATIOS, Ratio
from specfleet.judgement.verdict import Metric
from specfleet.telemetry.counters import Tally
from specfleet.telemetry.evidence import Arm, pool

DOUBT = 1.5  # a measured spread so many times the shipped one: the fleet is not like that, the shipped one counts half

Pods = Mapping[Arm, Mapping[str, Tally]]
Totals = Mapping[Arm, Tally]  # each arm's pods pooled


@dataclass(frozen=True, slots=True)
class Spread:
    """How pods of one revision differ: a standard deviation in the metric's unit."""

    assumed: float
    freedom: float  # its degrees of freedom
    measured: float  # without the shipped one; 0 where no arm has two pods
    measured_freedom: int


def spread_of(ratio: Ratio, pods: Pods, totals: Totals) -> Spread:
    """Measured among each arm's own pods, weighted by what each did, and drawn towards the shipped spread as if that
    had been measured on `spread_freedom` + 1 pods: with one pod in each arm nothing else is known. One that the pods
    contradict is believed less: it would make the bound too short (pods that differ by 3.4 points raised 6 to 9 %
    false alarms). What lies *between* the arms is not in it: that is what is judged.
    """
    squares, measured = 0.0, 0
    for arm, tallies in pods.items():
        known = [tally for tally in tallies.values() if ratio.known(tally)]
        if len(known) > 1:
            squares += len(known) * _variance(ratio, known, ratio.value(totals[arm]))
            measured += len(known) - 1
    alone = math.sqrt(squares / measured) if measured else 0.0
    shipped = ratio.spread_freedom / (2 if alone > DOUBT * ratio.spread else 1)
    freedom = shipped + measured
    variance = (shipped * ratio.spread**2 + measured * alone**2) / freedom
    return Spread(math.sqrt(variance), freedom, alone, measured)


def pod_spread(metric: Metric, pods: Mapping[str, Tally]) -> float | None:
    """By how much pods of one revision were seen to differ: a standard deviation in the metric's unit; None where fewer
    than two of them have the metric."""
    ratio = RATIOS[metric]
    known = {pod: tally for pod, tally in pods.items() if ratio.known(tally)}
    return spread_of(ratio, {Arm.STABLE: known}, {Arm.STABLE: pool(known)}).measured if len(known) > 1 else None


def _variance(ratio: Ratio, pods: Sequence[Tally], mean: float) -> float:
    """Of the pods around their mean, in the metric's unit squared, each pod by its share of the work."""
    work = sum(map(ratio.denominator, pods))
    return sum(ratio.denominator(pod) / work * ratio.difference(ratio.value(pod), mean)[0] ** 2 for pod in pods)


def concentration(ratio: Ratio, pods: Mapping[str, Tally]) -> float:
    """Σ share², which is 1/n for n equally busy pods: the variance of a pooled ratio in units of one pod's."""
    weights = [ratio.denominator(tally) for tally in pods.values()]
    return sum(weight * weight for weight in weights) / sum(weights) ** 2
