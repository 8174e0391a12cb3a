import pytest

from specfleet.judgement.verdict import Metric, MetricVerdict, Outcome, Verdict


def said(metric: Metric, outcome: Outcome, upper: float = 0.0, margin: float = 5.0) -> MetricVerdict:
    return MetricVerdict(metric, outcome, 0.0, -1.0, upper, margin, "%", 9, f"{metric}: {outcome}")


def all_good() -> dict[Metric, MetricVerdict]:
    return {metric: said(metric, Outcome.NON_INFERIOR) for metric in Metric}


def verdict(**changed: Outcome) -> Verdict:
    metrics = all_good() | {Metric(name): said(Metric(name), outcome) for name, outcome in changed.items()}
    return Verdict(tuple(metrics.values()))


def test_all_non_inferior_is_proven_and_holds_nothing() -> None:
    assert verdict().proven
    assert verdict().holding == ""
    assert verdict().regression is None


def test_acceptance_that_is_not_comparable_is_no_gate() -> None:
    assert verdict(acceptance=Outcome.NOT_COMPARABLE).proven


@pytest.mark.parametrize("metric", ["speed", "errors"])
def test_speed_and_errors_are_always_needed(metric: str) -> None:
    assert not verdict(**{metric: Outcome.NOT_COMPARABLE}).proven
    assert verdict(**{metric: Outcome.NOT_COMPARABLE}).holding
    assert not Verdict(tuple(v for v in all_good().values() if v.metric != metric)).proven


def test_nothing_compared_is_not_proven() -> None:
    assert not Verdict(()).proven
    assert Verdict(()).holding


@pytest.mark.parametrize(
    "outcome", [outcome for outcome in Outcome if outcome not in (Outcome.NON_INFERIOR, Outcome.NOT_COMPARABLE)]
)
@pytest.mark.parametrize("metric", list(Metric))
def test_any_other_outcome_of_any_metric_holds_and_says_why(metric: Metric, outcome: Outcome) -> None:
    look = verdict(**{metric.value: outcome})
    assert not look.proven
    assert look.holding == f"{metric}: {outcome}"


def test_of_several_regressions_the_one_furthest_below_its_margin_is_named() -> None:
    mild = said(Metric.SPEED, Outcome.REGRESSION, upper=-6, margin=5)
    bad = said(Metric.ERRORS, Outcome.REGRESSION, upper=-4, margin=1)
    assert Verdict((mild, bad)).regression is bad
