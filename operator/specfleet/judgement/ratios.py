"""The metrics as data: each a ratio of two counters, and what is known beforehand about how pods differ in it. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter

from specfleet.judgement.validity import Obstacle, contradicting, unlike_drafts, unlike_requests
from specfleet.judgement.verdict import Metric, Unit
from specfleet.telemetry.counters import Tally


@dataclass(frozen=True, slots=True)
class Ratio:
    """numerator ÷ denominator of a tally, compared between arms in `unit`."""

    numerator: Callable[[Tally], float]
    denominator: Callable[[Tally], float]
    trials: Callable[[Tally], float]  # how many chances there were to see something else: for the exact bound
    requests: Callable[[Tally], float]
    traffic: str  # what an arm without a denominator lacks
    unit: Unit
    higher_is_better: bool
    needs: tuple[Callable[[Tally, Tally], Obstacle], ...]  # what must be so of both arms' sums (canary, stable)
    spread: float  # shipped standard deviation between pods of one revision, in `unit`
    spread_freedom: float  # its degrees of freedom: how firmly it is believed
    like_load: bool = False  # only blocks in which both arms worked under about the same load inform
    hint: str = ""  # said behind the interval where its sign could be misread

    def known(self, tally: Tally) -> bool:
        """Whether `tally` has the ratio. Trials too: accepted tokens without a single output are no speed."""
        return self.denominator(tally) > 0 and self.trials(tally) > 0

    def value(self, tally: Tally) -> float:
        """The ratio itself, where it is `known`."""
        return self.numerator(tally) / self.denominator(tally)

    def difference(self, canary: float, stable: float) -> tuple[float, float, float]:
        """(difference in `unit`, + if the canary is better; its derivatives by the canary's and the stable's ratio)."""
        scale = 100.0 if self.higher_is_better else -100.0
        if self.unit == "points":
            return scale * (canary - stable), scale, -scale
        return scale * (canary / stable - 1), scale / stable, -scale * canary / stable**2


# Spread between pods. Acceptance: pods of one revision run the same weights and differ by the prompts that sessions and
# prefix caches bring them; about 1 point after an hour is usual, and 4 degrees of freedom let five stable pods outweigh
# it. Speed: GPUs of one product differ in clocks by a few percent on top of the batch they happen to run. Errors: pods
# of a healthy revision share a rate near 0, so the spread is small, but one bad client can sit on one pod. Late first
# tokens are rare too, and come in bursts from whichever pod has a queue.
RATIOS: dict[Metric, Ratio] = {
    Metric.SPEED: Ratio(
        numerator=lambda tally: tally.decode_outputs + tally.accepted,
        denominator=attrgetter("decode_seconds"),
        trials=attrgetter("decode_outputs"),
        requests=attrgetter("finished"),
        traffic="decoding",
        unit="%",
        higher_is_better=True,
        needs=(contradicting, unlike_requests),
        like_load=True,
        spread=2.0,
        spread_freedom=4,
    ),
    Metric.ACCEPTANCE: Ratio(
        numerator=attrgetter("accepted"),
        denominator=attrgetter("draft_tokens"),
        trials=attrgetter("drafts"),  # the tokens of one draft stand and fall together
        requests=attrgetter("finished"),
        traffic="drafts",
        unit="points",
        higher_is_better=True,
        needs=(contradicting, unlike_drafts),
        spread=1.0,
        spread_freedom=4,
    ),
    Metric.ERRORS: Ratio(
        numerator=attrgetter("http_errors"),
        denominator=attrgetter("http_requests"),
        trials=attrgetter("http_requests"),
        requests=attrgetter("http_requests"),
        traffic="requests",
        unit="points",
        higher_is_better=False,
        needs=(),
        spread=0.2,
        spread_freedom=4,
        hint=" (+ is fewer)",
    ),
    Metric.TTFT: Ratio(
        numerator=attrgetter("late"),
        denominator=attrgetter("timed"),
        trials=attrgetter("timed"),
        requests=attrgetter("timed"),
        traffic="timed first tokens",
        unit="points",
        higher_is_better=False,
        needs=(unlike_requests,),
        like_load=True,
        spread=0.5,
        spread_freedom=4,
    ),
}

# Where a schedule sets the proposal length by the batch, the arms' drafts differ in length with their load, and longer
# ones reach harder tokens. The first position is in every draft of both.
AT_FIRST_POSITION = replace(
    RATIOS[Metric.ACCEPTANCE],
    numerator=lambda tally: tally.per_position[0] if tally.per_position else 0.0,
    denominator=lambda tally: tally.drafts if tally.per_position else 0.0,
    hint=" (of the first token, since a schedule sets the others)",
)
