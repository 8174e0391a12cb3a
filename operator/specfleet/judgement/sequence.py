"""Statistics for a judge who looks often: a confidence sequence, Student's t, the bound without an event. Pure."""

import math
from functools import lru_cache
from itertools import count

MOST_ALPHA = 0.3  # beyond it no sequence is tightest anywhere
_TINY = 1e-300
_PRECISION = 1e-12


def half_width(sigma: float, blocks: int, rho2: float, alpha: float) -> float:
    """Half-width of a one-sided asymptotic confidence sequence after `blocks` values of standard deviation `sigma`.

    The probability that the running mean ever lies further than this on one side of the true mean is about `alpha`,
    however often one looks. Unit: that of sigma. `rho2` > 0 says where it is tightest: see `tuned_rho2`.
    Source: Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas, arXiv 2103.06476 (the one-sided form, normal mixture).
    """
    grown = blocks * rho2 + 1
    return sigma * math.sqrt(2 * grown / (blocks * blocks * rho2) * math.log(1 + math.sqrt(grown) / (2 * alpha)))


def tuned_rho2(alpha: float, blocks: float) -> float:
    """The `rho2` for which `half_width` is about smallest after `blocks` values; alpha < MOST_ALPHA. Source: there."""
    tail = -2 * math.log(2 * alpha)
    return (tail + math.log(tail) + 1) / blocks


def no_event_bound(alpha: float, trials: float) -> float:
    """Upper bound on the probability of an event that none of `trials` showed: −ln(alpha) ÷ trials, "rule of three".

    Valid at every look: if the event had a higher probability, one of the first −ln(alpha) ÷ p trials would have shown
    it with probability 1 − alpha, and then this bound is no longer asked for. 1 without trials.
    """
    return min(1.0, -math.log(alpha) / trials) if trials > 0 else 1.0


@lru_cache(maxsize=256)
def t_quantile(probability: float, freedom: float) -> float:
    """Student's t: the value below which a variable with `freedom` > 0 degrees (any real) lies with `probability`.

    0.5 ≤ probability < 1. By bisection of the distribution function, to 1e-9 relative.
    """
    low, high = 0.0, 1.0
    while _t_distribution(high, freedom) < probability:
        low, high = high, 2 * high
    while high - low > 1e-10 * (1 + high):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_distribution(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def _t_distribution(value: float, freedom: float) -> float:
    """P(T ≤ value) for value ≥ 0: 1 − I_x(freedom/2, 1/2) ÷ 2 at x = freedom ÷ (freedom + value²)."""
    return 1 - _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + value * value)) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b), 0 < x ≤ 1 (Abramowitz and Stegun 26.5.8)."""
    if x >= 1:
        return 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast only below this; use the symmetry
        return 1 - math.exp(log_front) * _beta_fraction(b, a, 1 - x) / b
    return math.exp(log_front) * _beta_fraction(a, b, x) / a


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by the modified Lentz method."""
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    value = d
    for m in count(1):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _nonzero(1 + term * d)
            c = _nonzero(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < _PRECISION or m > 10_000:
            break
    return value


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
