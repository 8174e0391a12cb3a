"""The engine batches, counts and stands still as it should, and repeats itself exactly."""

from dataclasses import replace

import pytest

from simulated import Run, job, page_of
from specfleet.simulation.dials import Dials
from specfleet.simulation.engine import Engine, Settings

EAGLE = Settings(method="eagle3", length=3)


def test_equal_seeds_give_equal_pages(run: Run) -> None:
    assert run(EAGLE).text == run(EAGLE).text


def test_another_seed_gives_another_page(run: Run) -> None:
    assert run(EAGLE).text != run(replace(EAGLE, seed="other")).text


def test_how_often_one_looks_changes_nothing() -> None:
    often, late = Engine(EAGLE), Engine(EAGLE)
    for number in range(5):
        for engine in (often, late):
            engine.advance(number * 0.1)
            engine.submit(number * 0.1, job(EAGLE, number))
    seen = [output for look in range(400) for output in often.advance(0.4 + look * 0.01)]
    assert seen == late.advance(4.4)[: len(seen)]
    assert page_of(EAGLE, often.counters).text == page_of(EAGLE, late.counters).text


def test_steps_of_equal_work_vary_and_so_do_servers() -> None:
    """Without either, comparing two arms would be easier than it is."""
    ends = {}
    for seed in ("1", "2"):
        engine = Engine(Settings(seed=seed))
        engine.submit(0.0, job(EAGLE, 0))
        ends[seed] = [output.at for output in engine.advance(30.0)]
    steps = [later - earlier for earlier, later in zip(ends["1"], ends["1"][1:], strict=False)]
    assert steps != sorted(steps)  # the KV cache alone would only make them longer
    assert 0.001 < abs(ends["1"][-1] / ends["2"][-1] - 1) < 0.05


def test_every_request_gets_exactly_its_tokens() -> None:
    engine = Engine(EAGLE)
    wanted = {engine.submit(0.0, job(EAGLE, number, output=5 + number)): 5 + number for number in range(20)}
    got: dict[int, int] = {}
    for output in engine.advance(100.0):
        got[output.request] = got.get(output.request, 0) + output.tokens
    assert got == wanted
    assert engine.next_event() is None


def test_no_more_than_max_num_seqs_run_and_the_rest_waits() -> None:
    engine = Engine(replace(EAGLE, max_num_seqs=2))
    for number in range(5):
        engine.submit(0.0, job(EAGLE, number))
    engine.advance(0.1)
    assert (engine.counters.gauges.running, engine.counters.gauges.waiting) == (2, 3)
    assert engine.counters.gauges.kv_usage > 0


def test_long_prompts_are_prefilled_in_chunks() -> None:
    engine = Engine(replace(EAGLE, max_batched_tokens=1000))
    engine.submit(0.0, job(EAGLE, 0, prompt=2500))
    first = engine.advance(60.0)[0]
    assert first.tokens == 1
    assert engine.counters.histograms["iteration_tokens_total"].counts[8] == 2  # two chunks of 1000 in (512, 1024]
    assert first.at > 0.040 * 2.5


def test_requests_share_steps(run: Run) -> None:
    page = run(EAGLE, requests=30, gap=0.05)
    assert page["inter_token_latency_seconds_count"] / page["iteration_tokens_total_count"] > 5


def test_acceptance_dial_at_zero_accepts_nothing(run: Run) -> None:
    page = run(EAGLE, dials=Dials(acceptance=0.0))
    assert page["spec_decode_num_accepted_tokens_total"] == 0
    assert page["spec_decode_num_drafts_total"] > 0


def test_speed_dial_scales_the_measured_step_time(run: Run) -> None:
    fast, slow = (run(EAGLE, requests=10, gap=5.0, dials=Dials(speed=speed)) for speed in (1.0, 0.5))
    assert slow.speed / fast.speed == pytest.approx(0.5, rel=1e-6)


def test_a_hang_freezes_counters_and_gauges_until_it_ends() -> None:
    engine = Engine(EAGLE)
    engine.submit(0.0, job(EAGLE, 0))
    engine.advance(0.2)
    engine.dials = Dials(hang=True)
    before = page_of(EAGLE, engine.counters).text
    engine.submit(0.3, job(EAGLE, 1))
    assert engine.advance(30.0) == []
    assert page_of(EAGLE, engine.counters).text == before
    assert engine.counters.gauges.running == 1
    engine.dials = Dials()
    finished = [output for output in engine.advance(60.0) if output.finished]
    assert {output.request for output in finished} == {1, 2}
    assert all(output.at >= 30.0 for output in finished)


def test_an_aborted_request_ends_counted_as_such_and_frees_its_place() -> None:
    engine = Engine(replace(EAGLE, max_num_seqs=1))
    first = engine.submit(0.0, job(EAGLE, 0))
    second = engine.submit(0.0, job(EAGLE, 1))
    engine.advance(0.2)
    engine.abort(0.2, first)
    assert {output.request for output in engine.advance(30.0)} == {second}
    assert engine.counters.finished["abort"] == 1
    assert engine.counters.gauges.running == 0


def test_a_schedule_shortens_the_drafts_of_a_full_batch(run: Run) -> None:
    schedule = ((1, 4, 5), (5, 64, 1))
    settings = Settings(method="eagle3", length=5, schedule=schedule)
    drafted = {}
    for gap in (2.0, 0.02):
        page = run(settings, requests=40, gap=gap)
        drafted[gap] = page["spec_decode_num_draft_tokens_total"] / page["spec_decode_num_drafts_total"]
    assert drafted[2.0] == 5
    assert drafted[0.02] < 2


def test_drafters_without_schedules_ignore_one(run: Run) -> None:
    page = run(Settings(method="dflash", length=5, schedule=((1, 64, 1),)))
    assert page["spec_decode_num_draft_tokens_total"] == 5 * page["spec_decode_num_drafts_total"]


def test_steps_without_proposals_count_no_draft(run: Run) -> None:
    page = run(Settings(method="eagle3", length=3, schedule=((1, 64, 0),)), requests=3)
    assert page["spec_decode_num_drafts_total"] == 0
    assert page["inter_token_latency_seconds_count"] == 3 * 99
