"""The truth model says what is published: acceptance by workload, the price of length, the selection effect."""

import pytest

from simulated import Page, Run
from specfleet.simulation import truth
from specfleet.simulation.engine import Settings

EAGLE = {length: Settings(method="eagle3", length=length) for length in (1, 3, 5)}
CODE_HEAVY = ("code", "code", "code", "code", "chat")


@pytest.fixture(scope="module")
def pages(run: Run) -> dict[tuple[str, int], Page]:
    """Pages of 400 requests by workload and proposal length, a few at a time."""
    mixes = {"chat": ("chat",), "code": ("code",), "mixed": CODE_HEAVY}
    return {(name, k): run(EAGLE[k], 400, mix, gap=0.25) for name, mix in mixes.items() for k in (3, 5)}


def test_acceptance_lengths_are_those_of_published_drafters(pages: dict[tuple[str, int], Page]) -> None:
    assert pages["chat", 3].acceptance_length == pytest.approx(2.2, abs=0.1)
    assert pages["code", 3].acceptance_length == pytest.approx(2.9, abs=0.1)


@pytest.mark.parametrize("name", ["chat", "code", "mixed"])
def test_a_longer_draft_reads_lower_on_the_positions_both_have(name: str, pages: dict[tuple[str, int], Page]) -> None:
    short, long = pages[name, 3].survival, pages[name, 5].survival[:3]
    points = 100 * sum(a - b for a, b in zip(short, long, strict=True)) / 3
    assert 0.5 <= points <= 4  # AMD's panels: 1.7 points in the mean


def test_independent_tokens_show_no_selection_effect(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The effect comes from requests and neighbours being alike, not from a rule about length."""
    monkeypatch.setattr(truth, "CORRELATION", 0.0)
    monkeypatch.setattr(truth, "REQUEST_SPREAD", 0.0)
    short, long = run(EAGLE[3], 700).survival, run(EAGLE[5], 700).survival[:3]
    assert 100 * sum(a - b for a, b in zip(short, long, strict=True)) / 3 == pytest.approx(0, abs=0.4)


def test_five_tokens_beat_three_clearly_on_code_at_small_batches(pages: dict[tuple[str, int], Page]) -> None:
    batch = pages["mixed", 3]["inter_token_latency_seconds_count"] / pages["mixed", 3]["iteration_tokens_total_count"]
    assert 1 <= batch <= 4
    assert pages["mixed", 5].speed / pages["mixed", 3].speed >= 1.10


def test_a_full_batch_turns_the_order_of_lengths_around() -> None:
    """With chat-like acceptance, verifying five tokens for each of 128 requests costs more than they bring."""
    emitted = {1: 1.56, 5: 2.43}
    speed = {k: e / truth.step_seconds(truth.DENSE, truth.Load(128, 128 * k, k)) for k, e in emitted.items()}
    assert speed[1] > speed[5]


def test_requests_differ_more_than_chance(run: Run) -> None:
    """Drafts of one request are alike, as in real traffic: acceptance varies between requests beyond their noise."""
    totals = []
    for seed in range(60):
        page = run(Settings(seed=str(seed), method="eagle3", length=3), requests=1)
        totals.append((page["spec_decode_num_accepted_tokens_total"], page["spec_decode_num_drafts_total"]))
    mean = sum(a for a, _ in totals) / sum(d for _, d in totals)
    between = sum((a / d - mean) ** 2 for a, d in totals) / len(totals)
    most_by_chance = (
        1.5**2 * sum(1 / d for _, d in totals) / len(totals)
    )  # 0 to 3 accepted: variance at most 1.5 squared
    assert between > most_by_chance


@pytest.mark.parametrize(
    ("prompt", "workload"),
    [
        ("Hello, how are you?", "chat"),
        ("[workload=math] hello", "math"),
        ("[workload=nonsense] hello", "chat"),
        ("```\ndef add(a, b):", "code"),
        ("2+2=", "math"),
        ("Write a poem about rain", "writing"),
    ],
)
def test_workload_follows_from_the_prompt(prompt: str, workload: str) -> None:
    assert truth.workload_of(prompt) == workload


def test_steps_last_as_long_as_on_an_instinct_gpu() -> None:
    idle, full = truth.Load(1, 3, 3, 500), truth.Load(64, 192, 3, 64 * 500)
    assert 0.010 < truth.step_seconds(truth.DENSE, idle) < 0.015
    assert 0.020 < truth.step_seconds(truth.DENSE, full) < 0.026


def test_a_block_drafter_pays_one_pass_for_any_length(run: Run) -> None:
    def step(method: str, length: int) -> float:
        page = run(Settings(method=method, length=length), requests=20, gap=3.0)
        return page["inter_token_latency_seconds_sum"] / page["inter_token_latency_seconds_count"]

    assert step("dflash", 7) - step("dflash", 3) < 0.5 * (step("eagle3", 7) - step("eagle3", 3))
