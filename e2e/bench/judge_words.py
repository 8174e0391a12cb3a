"""Words for what judges made of made-up canaries: which figure is held to which bar, all judges' tables, conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from bench.judge_cells import LIMIT, MUCH, SOME
from bench.judge_cost import DEPLOYMENTS, PODS
from bench.judge_ours import Watched
from bench.judge_plot import PICTURE
from bench.judge_table import PEERS, Result, Score
from bench.judge_world import ALIKE, BLOCKS, ERRORS, PROPOSAL, RATE, REQUEST_TOKENS, REQUESTS, TICK_SECONDS
from bench.report import PAGE, Figure, Section
from specfleet.judgement.ratios import RATIOS
from specfleet.judgement.verdict import Metric

if TYPE_CHECKING:
    from bench.judge import Judged, Outcome

FALSE_ALARM, FALSE_PROMOTION, FOUND, POWER = 0.05, 0.02, 0.95, 0.80
SOON = 30  # blocks
ACCEPTANCE, SPEED = RATIOS[Metric.ACCEPTANCE], RATIOS[Metric.SPEED]
KILOBYTES = 20
PROMISED = ((4, 4), (2, 8))  # canary and stable pods for which a false promotion has a bar
WORLD = (
    f"made-up counters, scraped every {TICK_SECONDS} s for {BLOCKS} blocks of a minute: {REQUESTS:.0f} requests a pod "
    f"and scrape (Poisson), {REQUEST_TOKENS} drafted tokens each, {PROPOSAL} a step, acceptance {100 * RATE:.0f} %, "
    f"tokens of a request correlated by {ALIKE}; {100 * ERRORS:.1f} % of requests fail; step time varies by 2 %",
    "both arms share a slow drift of the prompts (standard deviation 0.15 logit, memory half an hour; in the cell "
    f"*drift* 0.5); pods of one revision differ for good by 0, {SOME} or {MUCH} logit, which is 0, 1.8 or 3.4 points; "
    "*mix changes*: 0.8 logit down at some moment, in both arms",
    "*smaller batches*: a canary pod gets 0.4 of a stable pod's requests, and its steps are 12 % faster for it",
    "*drift × steps*: the stronger drift, while a canary pod gets a twentieth of its requests for the first hour",
    "shapes are canary + stable pods, 4 + 4 where nothing else is said; acceptance is what is worse in a bad canary, "
    "and its tokens per second follow",
)
OURS = (
    "the shipped code from a pod's counters on: `Evidence.add`, `judge` with all its metrics, a look after each block; "
    "margins 5 % of speed, 3 points of acceptance, 1 of errors; *no margin*: 0 in all three; *what the pods resolve*: "
    "`resolvable_margin` of the evidence so far, anew every 8 blocks",
    f"shipped spread between pods: {ACCEPTANCE.spread:g} point of acceptance and {SPEED.spread:g} % of speed with "
    f"{SPEED.spread_freedom:g} degrees of freedom, half as many where stable's pods differ by more than 1.5 times that",
)
RULES = (
    "*z test* and *mSPRT*: tokens since the start, a look at each scrape; abort if worse than stable at α = 0.05, "
    "promote if proven not to be worse by 3 points",
    "*Argo Rollouts*, as its analysis page has them: a step with `interval: 60s, count: 5` and the default of "
    "failureLimit, 0; a background analysis with `interval: 5m, failureLimit: 3` over four pauses of 10 min. A "
    "measurement fails if the canary is 3 points below stable in the same window, or below the level that stable had "
    "in the first 10 min",
    "*Flagger*, as its page on strategies has it: `interval: 1m, threshold: 10, maxWeight: 50, stepWeight: 2`; the two "
    "checks of Argo",
    "*Kayenta*: NetflixACAJudge on one-minute points, 98 % interval, tolerance 0.25, any decrease; judged at 30 and "
    "60 min",
    "*tuned*: the mildest change of the same rule's dial (points, α, ratio) with at most 5 % false alarms on that "
    "very column's rollouts, which nobody could know beforehand",
    "in *smaller batches* all but the token tests compare tokens per second, with 5 % for 3 points",
)
Share = Callable[[Watched], bool]


def sections(outcome: Outcome) -> Iterator[Section]:
    """The promises of the shipped judge, all judges side by side, and the cost."""
    every = f"{outcome.runs} rollouts for each cell and truth, fixed seeds"
    yield Section(
        "Judging a canary: what the judge promises",
        (*WORLD, *OURS, every),
        tuple(_promises(outcome)),
        (
            "A share of 400 rollouts is known to about ± 1 point at 5 % and ± 2 at 80 % (one standard error).",
            "More blocks do not help where pods differ: only more pods, or the wider margin that is published.",
            "Few pods may be alike by chance, in both arms: then nothing tells that the fleet differs by more than the "
            "shipped spread, and what was said of the canary was said too firmly.",
            "A margin that follows the pods admits what lies within it: at 6.5 points a canary that is 5 points worse "
            "may be promoted.",
        ),
    )
    tables = tuple(_tables([each for each in outcome.judged if each.results]))
    yield Section(
        "Judging a canary: the judges of others",
        ("the same rollouts and the same specfleet as above", *RULES),
        (),
        tables,
    )
    yield Section("Judging a canary: what it costs", _cost_conditions(), tuple(_costs(outcome)))


def _promises(outcome: Outcome) -> Iterator[Figure]:
    for one in outcome.judged:
        yield _figure(
            f"false alarms without a margin: {_named(one)}",
            one.equal,
            lambda each: each.strict.regression is not None,
            f"≤ {100 * FALSE_ALARM:.0f} %",
            lambda share: share <= FALSE_ALARM,
        )
    alarms = {_named(one): _part(one.equal, lambda each: each.margin.regression is not None) for one in outcome.judged}
    most = max(alarms, key=lambda name: alarms[name])
    yield Figure(
        "false alarms with the margin, all cells: most",
        f"{_percent(alarms[most])} ({most})",
        f"≤ {100 * FALSE_ALARM:.0f} %",
        met=alarms[most] <= FALSE_ALARM,
    )
    yield from _errors(outcome)
    yield from _powers(outcome.judged)


def _errors(outcome: Outcome) -> Iterator[Figure]:
    for one in outcome.judged:
        if one.bad and _is_shape(one) and (one.trial.cell.canary, one.trial.cell.stable) in PROMISED:
            bar, holds = _at_most(FALSE_PROMOTION)
            yield _figure(
                f"promoted though 5 points worse, margin 3: {_named(one)}",
                one.bad,
                _promoted,
                bar,
                holds,
            )
    bar, holds = f"≥ {100 * FOUND:.0f} %", lambda share: share >= FOUND
    yield _figure(
        f"8 points worse, margin 3, called within {SOON} blocks: 4 + 4, equal pods",
        outcome.worse,
        lambda each: _within(each.margin.regression),
        bar,
        holds,
    )
    yield _figure(
        f"5 points worse, no margin, called within {SOON} blocks: 4 + 4, equal pods",
        outcome.judged[0].bad,
        lambda each: _within(each.strict.regression),
        bar,
        holds,
    )


def _powers(judged: Iterable[Judged]) -> Iterator[Figure]:
    shapes = [one for one in judged if _is_shape(one)]
    bar, holds = f"≥ {100 * POWER:.0f} %", lambda share: share >= POWER
    for number, one in enumerate(shapes):
        if not number:
            yield _figure(
                f"equal canary proven, margin 3: {_named(one)}",
                one.equal,
                lambda each: each.margin.proven is not None,
                bar,
                holds,
            )
        points = sorted(each.points for each in one.equal)[len(one.equal) // 2]
        resolved = points <= LIMIT
        what = f"equal canary proven at what the pods resolve ({points:.1f} points): {_named(one)}"
        figure = _figure(what, one.equal, lambda each: each.published.proven is not None, bar, holds)
        yield figure if resolved else Figure(figure.what, figure.ours, f"none: above {LIMIT:g} points")


def _is_shape(one: Judged) -> bool:
    return one.trial.cell.name.startswith(one.trial.cell.shape)


def _at_most(limit: float) -> tuple[str, Callable[[float], bool]]:
    return f"≤ {100 * limit:.0f} %", lambda share: share <= limit


def _promoted(each: Watched) -> bool:
    proof, alarm = each.margin.proven, each.margin.regression
    return proof is not None and (alarm is None or proof < alarm)


def _within(block: int | None) -> bool:
    return block is not None and block <= SOON


def _named(one: Judged) -> str:
    return one.trial.cell.name


def _part(many: list[Watched], holds: Share) -> float:
    return sum(map(holds, many)) / len(many)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _figure(what: str, many: list[Watched], says: Share, bar: str, holds: Callable[[float], bool]) -> Figure:
    share = _part(many, says)
    return Figure(what, _percent(share), bar, met=holds(share))


def _tables(judged: list[Judged]) -> Iterator[str]:
    picture = PICTURE.relative_to(PAGE.parent)
    yield (
        f"![Shares of equal canaries that were aborted and of bad ones that were promoted, judge by judge]({picture})"
    )
    yield (
        "An **equal** canary: % aborted (false alarms) / % promoted (median minute). The rest is neither within "
        "two hours.\n\n" + _table(judged, lambda result: _both(result.equal), tuned=False)
    )
    yield (
        "A canary that is **5 points worse**: % aborted (median minute) / % promoted, at each judge's default.\n\n"
        + _table(judged, _bad, tuned=False)
    )
    yield (
        "The same 5 points, each judge **tuned** to at most 5 % false alarms: % aborted (median minute) / % promoted; "
        "setting.\n\n" + _table(judged, _bad_tuned, tuned=True)
    )


def _both(score: Score) -> str:
    return f"{100 * score.aborted:.0f} / {100 * score.promoted:.0f}{_minute(score.promotion_minute)}"


def _bad(result: Result) -> str:
    score = result.bad
    if score is None:
        return "-"
    return f"{100 * score.aborted:.0f}{_minute(score.abort_minute)} / {100 * score.promoted:.0f}"


def _bad_tuned(result: Result) -> str:
    return f"{_bad(result)}; {result.setting}"


def _minute(minute: float | None) -> str:
    return "" if minute is None else f" ({minute:.0f})"


def _table(judged: list[Judged], cell: Callable[[Result], str], tuned: bool) -> str:
    columns = [[pair[tuned] for pair in one.results] for one in judged]
    names = [pair[0].judge for pair in judged[0].results]
    rows = [["", *(one.trial.heading for one in judged)]]
    for number, name in enumerate(names):
        results = [column[number] for column in columns]
        if not tuned or number >= len(names) - len(PEERS):
            rows.append([name, *("never" if each is None else cell(each) for each in results)])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


LONGEST = 600  # seconds


def _cost_conditions() -> tuple[str, ...]:
    return (f"{PODS} pods, {BLOCKS} blocks, all metrics; CPU time of one process, five runs",)


def _costs(outcome: Outcome) -> Iterator[Figure]:
    cost = outcome.cost
    yield Figure("the whole benchmark", f"{outcome.seconds:.0f} s", f"≤ {LONGEST} s", met=outcome.seconds <= LONGEST)
    yield Figure(
        f"CPU time to judge {DEPLOYMENTS} deployments once, median (worst)",
        f"{cost.median:.2f} s ({cost.worst:.2f} s)",
        "≤ 1 s",
        met=cost.median <= 1,
    )
    kilobytes = cost.evidence / 1000
    yield Figure(
        "evidence of one deployment, at rest",
        f"{kilobytes:.1f} kB",
        f"≤ {KILOBYTES} kB",
        met=kilobytes <= KILOBYTES,
    )
