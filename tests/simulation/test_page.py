"""The simulated page is vLLM's own: same lines, types, labels and edges, and the same sums hold on it."""

import re

import pytest

from simulated import Page, Run, page_of
from specfleet.simulation import truth
from specfleet.simulation.counters import Counters, length_edges
from specfleet.simulation.engine import Settings
from specfleet.simulation.page import _number
from specfleet.telemetry.page import parse

DRAFT_K4 = Settings(method="draft_model", length=4, max_model_len=2048)
OFF = Settings(max_model_len=2048)
PER_SERVER = ("vllm:cache_config_info", "python_info")


def shape(page: Page) -> list[str]:
    """Every TYPE line and every series in order, with labels and (but for facts on one server) their values."""
    lines = [line for line in page.text.splitlines() if not line.startswith("# HELP")]
    series = [line if line.startswith("#") else line.rsplit(" ", 1)[0] for line in lines]
    return [re.sub(r'="[^"]*"', "", line) if line.startswith(PER_SERVER) else line for line in series]


def test_page_with_a_drafter_has_the_lines_of_the_real_one(run: Run, real: dict[str, Page]) -> None:
    assert shape(run(DRAFT_K4, requests=3)) == shape(real["draft-k4-greedy20"])


def test_page_without_speculation_has_the_lines_of_the_real_one(run: Run, real: dict[str, Page]) -> None:
    page = run(OFF, requests=3)
    assert shape(page) == shape(real["spec-off"])
    assert "spec_decode" not in page.text


def test_idle_page_has_every_position_at_zero(real: dict[str, Page]) -> None:
    page = page_of(DRAFT_K4, Counters(4, 2048))
    assert shape(page) == shape(real["draft-k4-idle"])
    assert page.positions == {0: 0.0, 1: 0.0, 2: 0.0, 3: 0.0}


def test_a_drafter_takes_kv_blocks(run: Run, real: dict[str, Page]) -> None:
    def blocks(page: Page) -> int:
        found = re.search(r'num_gpu_blocks="(\d+)"', page.text)
        assert found is not None
        return int(found[1])

    assert blocks(run(DRAFT_K4, requests=1)) / blocks(run(OFF, requests=1)) == pytest.approx(
        blocks(real["draft-k4-greedy20"]) / blocks(real["spec-off"]), abs=0.005
    )


def test_what_fits_into_the_kv_cache_reads_as_on_the_real_page() -> None:
    """Blocks and their size, by the operator's own reader; the dial leaves fewer of them."""
    whole, short = (parse(page_of(DRAFT_K4, Counters(4, 2048), kv=share).text.encode()) for share in (1.0, 0.75))
    assert whole.kv_tokens == truth.kv_blocks("draft_model") * truth.BLOCK_SIZE
    assert short.kv_tokens == 15_426 * 16
    assert parse(page_of(OFF, Counters(0, 2048)).text.encode()).kv_tokens == truth.KV_BLOCKS * truth.BLOCK_SIZE


def test_first_tokens_are_timed_as_on_the_real_page(run: Run, real: dict[str, Page]) -> None:
    simulated, recorded = (
        parse(page.text.encode()) for page in (run(DRAFT_K4, requests=12), real["draft-k4-greedy20"])
    )
    bounds = [bound for bound, _ in recorded.first_token_times]
    assert [bound for bound, _ in simulated.first_token_times] == bounds
    assert simulated.first_token_times[-1][1] == simulated.first_tokens == 12


@pytest.mark.parametrize("value", [0.0, 12.0, 0.1332, 1234567.5, 1.7960354203246e9, 2.426048512e9])
def test_numbers_read_back_as_they_were(value: float) -> None:
    assert float(_number(value)) == value


def test_length_edges_end_at_the_context() -> None:
    assert length_edges(2048)[-1] == 2000.0
    assert length_edges(32768)[-3:] == (5000.0, 10000.0, 20000.0)


SIMULATED = {
    "off": Settings(),
    "eagle3 k=3": Settings(method="eagle3", length=3),
    "mtp k=5": Settings(method="mtp", length=5),
    "ngram k=3": Settings(method="ngram", length=3),
}
REAL = ("draft-k4-greedy20", "draft-k2-greedy20", "ngram-k3-greedy20", "spec-off")


@pytest.fixture(params=[*SIMULATED, *REAL])
def any_page(request: pytest.FixtureRequest, run: Run, real: dict[str, Page]) -> Page:
    name = request.param
    return real[name] if name in real else run(SIMULATED[name], mix=("chat", "code"))


def test_generated_tokens_are_first_ones_outputs_and_accepted_ones(any_page: Page) -> None:
    accepted = any_page.sums.get("spec_decode_num_accepted_tokens_total", 0.0)
    outputs = any_page["inter_token_latency_seconds_count"] + any_page["time_to_first_token_seconds_count"]
    generated = any_page["generation_tokens_total"]
    assert generated <= outputs + accepted <= 1.05 * generated  # what is accepted past a stop is cut


def test_positions_add_up_to_accepted_and_never_rise(any_page: Page) -> None:
    counts = [any_page.positions[position] for position in sorted(any_page.positions)]
    assert sum(counts) == any_page.sums.get("spec_decode_num_accepted_tokens_total", 0.0)
    assert counts == sorted(counts, reverse=True)


def test_decode_time_is_the_time_between_outputs(any_page: Page) -> None:
    assert any_page["request_decode_time_seconds_sum"] == pytest.approx(
        any_page["inter_token_latency_seconds_sum"], rel=1e-6
    )


def test_iterations_count_prompt_and_generated_tokens(any_page: Page) -> None:
    tokens = any_page["prompt_tokens_total"] + any_page["generation_tokens_total"]
    assert any_page["iteration_tokens_total_sum"] == tokens


@pytest.mark.parametrize("name", ["eagle3 k=3", "mtp k=5"])
def test_a_drafter_drafts_its_whole_length_in_every_step(name: str, run: Run) -> None:
    page = run(SIMULATED[name])
    assert page["spec_decode_num_draft_tokens_total"] == SIMULATED[name].length * page["spec_decode_num_drafts_total"]
    assert page["spec_decode_num_drafts_total"] == page["inter_token_latency_seconds_count"]


def test_ngram_drafts_only_where_the_text_repeats(run: Run, real: dict[str, Page]) -> None:
    for page in (run(SIMULATED["ngram k=3"]), real["ngram-k3-greedy20"]):
        drafts = page["spec_decode_num_drafts_total"]
        assert 0 < drafts < page["inter_token_latency_seconds_count"]
        assert page["spec_decode_num_draft_tokens_total"] < 3 * drafts
