"""What a judgement says: an outcome per metric with its interval, and whether the canary is proven. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Metric(StrEnum):
    """What two arms are compared by. In every one a positive difference means that the canary is better."""

    SPEED = "speed"
    ACCEPTANCE = "acceptance"
    ERRORS = "errors"
    TTFT = "ttft"  # time to the first token beyond the user's limit; judged only where there is one


class Outcome(StrEnum):
    """What is known about one metric."""

    REGRESSION = "Regression"  # worse than the margin allows: the interval lies below −margin
    NON_INFERIOR = "NonInferior"  # not worse than the margin allows: the interval lies above −margin
    INCONCLUSIVE = "Inconclusive"  # the interval holds −margin
    INSUFFICIENT_DATA = "InsufficientData"
    NO_TRAFFIC = "NoTraffic"  # an arm did nothing that this metric could be taken from
    INSUFFICIENT_OVERLAP = "InsufficientOverlap"  # the arms worked under loads too different to compare
    INCONSISTENT = "Inconsistent"  # an arm's counters contradict each other
    NOT_COMPARABLE = "NotComparable"  # the arms differ by intention in this metric: it is no gate


Unit = Literal["%", "points"]  # percent of stable's value, or percentage points


@dataclass(frozen=True, slots=True)
class MetricVerdict:
    """One metric: `estimate` within [`lower`, `upper`], all in `unit` (None = unknown), + is better for the canary.

    `more` says how many more blocks decide it, if things go on as they do: 0 where it is decided, inf where time alone
    does not, None where nothing can be said.
    """

    metric: Metric
    outcome: Outcome
    estimate: float | None
    lower: float | None
    upper: float | None
    margin: float
    unit: Unit
    blocks: int
    message: str
    more: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """All metrics of one look."""

    metrics: tuple[MetricVerdict, ...]

    def of(self, metric: Metric) -> MetricVerdict:
        """That of one metric. Raises KeyError if it was not looked at."""
        return {item.metric: item for item in self.metrics}[metric]

    @property
    def regression(self) -> MetricVerdict | None:
        """The metric that regressed, the one furthest below its margin (in margins) if several did."""
        regressed = [verdict for verdict in self.metrics if verdict.outcome is Outcome.REGRESSION]
        return min(regressed, key=_severity, default=None)

    @property
    def proven(self) -> bool:
        """True if every comparable metric is non-inferior, speed and errors among them. Unknown is never proven."""
        passed = {verdict.metric for verdict in self.metrics if verdict.outcome is Outcome.NON_INFERIOR}
        return not self._unproven() and {Metric.SPEED, Metric.ERRORS} <= passed

    @property
    def holding(self) -> str:
        """Why the canary is not proven, in one line; empty if it is."""
        if self.proven:
            return ""
        return "; ".join(verdict.message for verdict in self._unproven()) or "speed and errors were not compared"

    def _unproven(self) -> list[MetricVerdict]:
        settled = (Outcome.NON_INFERIOR, Outcome.NOT_COMPARABLE)
        return [verdict for verdict in self.metrics if verdict.outcome not in settled]


def _severity(verdict: MetricVerdict) -> float:
    return (verdict.upper or 0.0) / max(verdict.margin, 1e-9)
