import re
from collections.abc import Callable
from pathlib import Path

import pytest

from specfleet.telemetry import derived
from specfleet.telemetry.counters import COUNTERS, Tally
from specfleet.telemetry.page import parse

PAGES = Path(__file__).parent / "pages"
WORKED = ["draft-k2-greedy20", "draft-k4-greedy20", "ngram-k3-greedy20", "spec-off"]


def whole_life(name: str) -> Tally:
    sample = parse((PAGES / f"{name}.txt").read_bytes())
    values = [getattr(sample, counter) or 0.0 for counter in COUNTERS]
    return Tally(*values, per_position=sample.accepted_per_position, speculating=sample.drafts is not None)


def series(name: str, key: str) -> float:
    text = (PAGES / f"{name}.txt").read_text()
    found = re.search(rf"^{re.escape(key)}\{{[^}}]*\}} (\S+)$", text, re.MULTILINE)
    assert found
    return float(found[1])


@pytest.mark.parametrize("name", WORKED)
def test_speed_is_the_inverse_of_what_vllm_says_a_token_takes(name: str) -> None:
    family = "vllm:request_time_per_output_token_seconds"
    per_token = series(name, family + "_sum") / series(name, family + "_count")
    assert derived.speed(whole_life(name)) == pytest.approx(1 / per_token, rel=0.01)


@pytest.mark.parametrize("name", WORKED)
def test_the_counters_of_a_real_server_agree_with_each_other(name: str) -> None:
    assert derived.consistency_error(whole_life(name)) == pytest.approx(0, abs=0.01)


def test_acceptance_falls_with_the_proposal_length_though_more_is_gained() -> None:
    short, long = whole_life("draft-k2-greedy20"), whole_life("draft-k4-greedy20")
    assert derived.acceptance_rate(short) == pytest.approx(762 / 2448)
    assert derived.acceptance_rate(long) == pytest.approx(852 / 4536)
    assert derived.tokens_per_step(short) == pytest.approx(1 + 762 / 1224)
    assert derived.tokens_per_step(long) == pytest.approx(1 + 852 / 1134)


def test_step_time_is_not_time_per_token_under_speculation() -> None:
    tally = whole_life("draft-k4-greedy20")
    step, speed, length = derived.step_time(tally), derived.speed(tally), derived.tokens_per_step(tally)
    assert step is not None
    assert length is not None
    assert speed == pytest.approx(length / step)  # every decode step drafted here


def test_ngram_drafts_only_in_some_steps() -> None:
    assert derived.coverage(whole_life("ngram-k3-greedy20")) == pytest.approx(520 / 1070)
    assert derived.coverage(whole_life("draft-k4-greedy20")) == pytest.approx(1.0)
    assert derived.coverage(whole_life("spec-off")) is None


def test_batch_rate_and_errors_are_plain_ratios() -> None:
    tally = Tally(
        decode_outputs=120, iterations=30, first_tokens=6, seconds=60, http_requests=50, http_errors=5, drafts=10,
        per_position=(4.0, 1.0),
    )  # fmt: skip
    assert derived.mean_batch(tally) == 4
    assert derived.request_rate(tally) == pytest.approx(0.1)
    assert derived.error_share(tally) == pytest.approx(0.1)
    assert derived.position_acceptance(tally, 1) == pytest.approx(0.1)
    assert derived.position_acceptance(tally, 2) is None


@pytest.mark.parametrize(
    "quantity",
    [
        derived.acceptance_rate,
        derived.tokens_per_step,
        derived.speed,
        derived.step_time,
        derived.mean_batch,
        derived.request_rate,
        derived.coverage,
        derived.consistency_error,
        derived.error_share,
    ],
)
def test_without_traffic_every_quantity_is_unknown(quantity: Callable[[Tally], float | None]) -> None:
    assert quantity(Tally(speculating=True)) is None
