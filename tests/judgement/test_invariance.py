"""What a verdict does not depend on: how a pod's counters are split, who is called what, restarts, the unit of time,
how many requests each arm gets. From metrics pages where it matters, else from evidence."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.judgement.judge import Policy, judge
from specfleet.judgement.verdict import Metric, MetricVerdict, Outcome, Verdict
from specfleet.telemetry.collector import Collector
from specfleet.telemetry.counters import Observation, Tally
from specfleet.telemetry.evidence import EMPTY, Arm, Block, Evidence, from_json
from specfleet.telemetry.page import Sample, parse

POLICY = Policy(speed_percent=5, acceptance_points=5, error_points=1, max_blocks=120)
PODS = {Arm.STABLE: ("s1", "s2"), Arm.CANARY: ("c1",)}
ENGINE_FAMILIES = {  # summed over vLLM's label `engine`; what a pod counts a minute at most
    "vllm:spec_decode_num_drafts_total": 900,
    "vllm:spec_decode_num_draft_tokens_total": 2700,
    "vllm:spec_decode_num_accepted_tokens_total": 2000,
    "vllm:inter_token_latency_seconds_count": 900,
    "vllm:inter_token_latency_seconds_sum": 60,
    "vllm:time_to_first_token_seconds_count": 40,
    "vllm:iteration_tokens_total_count": 300,
}
FINISHED = 'vllm:request_success_total{finished_reason="stop",engine="%d"}'


def page(counts: dict[str, int], engines: int, rng: random.Random) -> bytes:
    """A pod's page; each counter is split over so many engines, unevenly."""
    lines = ["process_start_time_seconds 1"]
    for name, total in counts.items():
        cuts = sorted(rng.randint(0, total) for _ in range(engines - 1))
        parts = [after - before for before, after in zip([0, *cuts], [*cuts, total], strict=True)]
        form = FINISHED if name == "finished" else f'{name}{{engine="%d"}}'
        lines += [f"{form % engine} {part}" for engine, part in enumerate(parts)]
    lines.append(f'http_requests_total{{handler="/v1/completions",status="2xx"}} {counts["finished"]}')
    return "\n".join(lines).encode()


def pages(seed: int, minutes: int, engines: int = 1) -> list[dict[Arm, dict[str, Sample]]]:
    """A tick a minute. Engines may share a counter out anew at each: only sums count, and their sum only rises."""
    rng, split = random.Random(seed), random.Random(engines)
    counts = {pod: dict.fromkeys([*ENGINE_FAMILIES, "finished"], 0) for arm in PODS for pod in PODS[arm]}
    ticks = []
    for _ in range(minutes):
        for pod in counts:
            for name, most in ENGINE_FAMILIES.items():
                counts[pod][name] += rng.randint(most // 2, most)
            counts[pod]["finished"] += rng.randint(20, 40)
        ticks.append({arm: {pod: parse(page(counts[pod], engines, split)) for pod in PODS[arm]} for arm in PODS})
    return ticks


def collected(ticks: list[dict[Arm, dict[str, Sample]]], first: int = 0, pace: float = 60.0) -> Iterator[Block]:
    """The blocks that one life of an operator gets from ticks; it begins at the tick `first`."""
    collector = Collector(60 * pace / 20, 0.0)  # of three ticks, so that a restart finds one open
    for number, tick in enumerate(ticks, start=first):
        seen = {arm: {pod: Observation((pod, 0), sample) for pod, sample in pods.items()} for arm, pods in tick.items()}
        if block := collector.tick(number * pace, seen):
            yield block


def gathered(blocks: Iterator[Block] | list[Block], start: Evidence = EMPTY) -> Evidence:
    for block in blocks:
        start = start.add(block)
    return start


def rounded(verdict: Verdict) -> list[Any]:
    def numbers(each: MetricVerdict) -> list[Any]:
        return [pytest.approx(value, abs=1e-6) for value in (each.estimate, each.lower, each.upper)]

    return [(each.metric, each.outcome, each.blocks, *numbers(each)) for each in verdict.metrics]


@settings(max_examples=12)
@given(st.integers(0, 10**6), st.integers(2, 8))
def test_how_a_pods_counters_are_split_over_engines_does_not_matter(seed: int, engines: int) -> None:
    whole, split = (gathered(collected(pages(seed, 31, number))) for number in (1, engines))
    assert split == whole
    assert judge(split, True, POLICY) == judge(whole, True, POLICY)
    assert len(whole.blocks) == 10


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 50))
def test_a_restart_loses_the_open_block_and_the_tick_after_and_changes_nothing_else(seed: int, at: int) -> None:
    """What is invariant: all blocks that were complete, in every digit, and so the verdict until a new one comes; then
    the verdict is the one of those blocks and of what an operator sees that began at the restart. Nothing is counted
    twice, and nothing of the time between."""
    ticks = pages(seed, 52)
    before = gathered(collected(ticks[:at]))
    kept = from_json(before.to_json())
    assert judge(kept, True, POLICY) == judge(before, True, POLICY)
    later = list(collected(ticks[at:], first=at))
    resumed = gathered(later, kept)
    assert resumed == gathered([*collected(ticks[:at]), *later])
    assert resumed.blocks[: len(before.blocks)] == before.blocks
    unbroken = gathered(collected(ticks))
    assert 0 <= len(unbroken.blocks) - len(resumed.blocks) <= 1
    for arm in Arm:
        for pod, tally in resumed.pods[arm].items():
            most = unbroken.pods[arm][pod].seconds + 2 * 60  # the blocks lie elsewhere: two ticks more may fit
            assert tally.seconds <= most
            assert tally.seconds == 180 * len(resumed.blocks)


@settings(max_examples=25)
@given(st.lists(st.integers(1, 19), min_size=1, max_size=4, unique=True), st.integers(0, 10**6))
def test_restarts_between_any_blocks_change_no_digit(cuts: list[int], seed: int) -> None:
    rng, total, stored = random.Random(seed), EMPTY, EMPTY
    for number in range(20):
        block = minute(rng, {"s1": 1.0, "s2": 1.0, "c1": 1.02})
        total, stored = total.add(block), stored.add(block)
        if number in cuts:
            stored = from_json(stored.to_json())
        assert judge(stored, True, POLICY) == judge(total, True, POLICY)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from([2, 5, 60, 3600]))
def test_the_unit_of_time_does_not_matter(seed: int, longer: int) -> None:
    """Everything takes `longer` times as long, and the operator's clock runs as much slower."""

    def stretched(tally: Tally) -> Tally:
        return replace(tally, decode_seconds=tally.decode_seconds * longer, seconds=tally.seconds * longer)

    blocks = list(collected(pages(seed, 31)))
    slow = [Block(*({pod: stretched(t) for pod, t in arm.items()} for arm in (b.stable, b.canary))) for b in blocks]
    assert rounded(judge(gathered(slow), True, POLICY)) == rounded(judge(gathered(blocks), True, POLICY))
    paced = gathered(collected(pages(seed, 31), pace=60.0 * longer))
    assert rounded(judge(paced, True, POLICY)) == rounded(judge(gathered(blocks), True, POLICY))


def minute(rng: random.Random, pods: dict[str, float], load: float = 1.0) -> Block:
    """A minute of pods that run one revision, each at its own pace; the canary's get `load` times stable's requests.

    A step takes the longer the more requests it serves at once, which follow from their rate and how long they last.
    """
    drift = rng.gauss(0, 0.05)
    arms: dict[str, dict[str, Tally]] = {"s": {}, "c": {}}
    for pod, pace in pods.items():
        rate = 2.0 * (load if pod[0] == "c" else 1.0)  # requests per second, of 400 tokens in 160 steps
        step = (
            0.012 * pace / (1 - 0.012 * 160 * rate * 0.01)
        )  # base · (1 + 1 % of the batch), batch = rate · 160 · step
        requests = max(0, round(rng.gauss(60 * rate, math.sqrt(60 * rate))))
        drafts = 160.0 * requests
        accepted = drafts * 3 * min(1.0, max(0.0, 0.5 + drift + rng.gauss(0, 0.3) / math.sqrt(max(requests, 1))))
        seconds = drafts * step * rng.gauss(1.0, 0.02)
        arms[pod[0]][pod] = Tally(
            drafts=drafts, draft_tokens=3 * drafts, accepted=accepted, decode_outputs=drafts, decode_seconds=seconds,
            first_tokens=requests, iterations=60 / step, finished=requests, http_requests=requests, seconds=60,
            speculating=True,
        )  # fmt: skip
    return Block(arms["s"], arms["c"])


ROLLOUTS = 30
NOMINAL = 0.05


def most_by_chance(trials: int, rate: float) -> int:
    """As many alarms as 99 of 100 such batches of rollouts stay below, if `rate` is the truth."""
    below, number = 0.0, 0
    while (below := below + math.comb(trials, number) * rate**number * (1 - rate) ** (trials - number)) < 0.99:
        number += 1
    return number


def alarmed(load: float, seed: int) -> bool:
    """Whether some look at a rollout of equal arms raises the alarm, at the default margins."""
    rng, evidence = random.Random(f"{load}/{seed}"), EMPTY
    pods = {name: rng.gauss(1.0, 0.01) for name in ("s1", "s2", "s3", "c1")}
    for number in range(1, 25):
        evidence = evidence.add(minute(rng, pods, load))
        if number >= 8 and number % 4 == 0 and judge(evidence, True, POLICY).regression:
            return True
    return False


@pytest.mark.parametrize("load", [0.05, 0.3, 0.7, 1.0, 1.4, 2.0, 5.0])
def test_equal_arms_under_unlike_load_are_no_regression_beyond_the_nominal_rate(load: float) -> None:
    alarms = sum(alarmed(load, seed) for seed in range(ROLLOUTS))
    assert alarms <= most_by_chance(ROLLOUTS, NOMINAL)


def test_the_simulation_would_see_a_judge_that_does_not_ask_for_like_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("MAX_LOAD_RATIO", "MAX_BLOCK_LOAD_RATIO"):
        monkeypatch.setattr(f"specfleet.judgement.validity.{limit}", 1e6)
    assert sum(alarmed(5.0, seed) for seed in range(6)) == 6


ALL = st.lists(st.floats(0, 60), min_size=2, max_size=2)


@settings(max_examples=40)
@given(ALL, st.floats(0.9, 1.2), st.integers(0, 10**6))
def test_a_larger_margin_keeps_what_is_proven_and_makes_no_regression(
    margins: list[float], pace: float, seed: int
) -> None:
    rng = random.Random(seed)
    evidence = gathered([minute(rng, {"s1": 1.0, "s2": 1.01, "c1": pace, "c2": pace}) for _ in range(12)])
    small, large = (judge(evidence, True, replace(POLICY, speed_percent=margin)) for margin in sorted(margins))
    before, after = small.metrics[0], large.metrics[0]
    assert before.metric is Metric.SPEED
    if before.outcome is Outcome.NON_INFERIOR:
        assert after.outcome is Outcome.NON_INFERIOR
    if before.outcome is not Outcome.REGRESSION:
        assert after.outcome is not Outcome.REGRESSION
    assert (before.estimate, before.lower, before.upper) == (after.estimate, after.lower, after.upper)
    assert small.metrics[1:] == large.metrics[1:]
