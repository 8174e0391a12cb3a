import re
from collections.abc import Callable
from dataclasses import replace
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
    assert derived.request_rate(tally) == pytest.approx(50 / 60)
    assert derived.error_share(tally) == pytest.approx(0.1)
    assert derived.position_acceptance(tally, 1) == pytest.approx(0.1)
    assert derived.position_acceptance(tally, 2) is None


@pytest.mark.parametrize("name", WORKED)
def test_time_per_output_token_is_vllms_own(name: str) -> None:
    family = "vllm:request_time_per_output_token_seconds"
    per_token = series(name, family + "_sum") / series(name, family + "_count")
    assert derived.time_per_output_token(whole_life(name)) == pytest.approx(per_token, rel=0.01)


@pytest.mark.parametrize("name", WORKED)
def test_a_real_server_is_consistent(name: str) -> None:
    assert derived.consistent(whole_life(name))


def test_counters_that_contradict_each_other_are_no_measurement() -> None:
    tally = whole_life("draft-k4-greedy20")
    for name, factor in (("generation_tokens", 0.9), ("accepted", 2), ("decode_outputs", 0.8)):
        assert derived.consistent(replace(tally, **{name: factor * getattr(tally, name)})) is False, name


def test_short_answers_whose_last_draft_reaches_past_the_stop_are_consistent() -> None:
    """60 answers of 20 tokens at 5 drafted: up to 5 accepted tokens of each may lie behind its stop."""
    tally = Tally(drafts=400, draft_tokens=2000, accepted=860, decode_outputs=400, first_tokens=60, finished=60,
                  generation_tokens=1200)  # fmt: skip
    error = derived.consistency_error(tally)
    assert error == pytest.approx(0.1)
    assert derived.consistent(tally) is True
    assert derived.consistent(replace(tally, accepted=1160)) is False


def test_without_generated_tokens_nobody_knows_whether_counters_agree() -> None:
    assert derived.consistent(Tally(decode_outputs=5)) is None


def test_drafts_are_as_long_as_they_were_and_not_as_configured() -> None:
    assert derived.draft_length(whole_life("draft-k4-greedy20")) == 4
    assert derived.draft_length(whole_life("ngram-k3-greedy20")) == pytest.approx(1474 / 520)


def test_phantom_drafts_show_as_a_coverage_above_one() -> None:
    """A request admitted with one token to compute is padded with drafts that no step made (vllm#45237)."""
    real = whole_life("draft-k4-greedy20")
    padded = replace(real, drafts=real.drafts + 200, draft_tokens=real.draft_tokens + 800)
    assert derived.coverage(padded) == pytest.approx(1334 / 1134)
    assert derived.consistent(padded)  # the identity does not see them


def test_steps_at_a_schedules_zero_show_as_a_coverage_below_one() -> None:
    half = replace(whole_life("draft-k4-greedy20"), drafts=567, draft_tokens=2268, accepted=426)
    assert derived.coverage(half) == pytest.approx(0.5)
    assert derived.tokens_per_step(half) == derived.tokens_per_step(whole_life("draft-k4-greedy20"))


def test_the_share_of_late_first_tokens_is_of_those_that_were_timed() -> None:
    assert derived.late_share(Tally(first_tokens=100, timed=40, late=4)) == pytest.approx(0.1)


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
        derived.time_per_output_token,
        derived.draft_length,
        derived.prompt_share,
        derived.late_share,
    ],
)
def test_without_traffic_every_quantity_is_unknown(quantity: Callable[[Tally], float | None]) -> None:
    assert quantity(Tally(speculating=True)) is None
