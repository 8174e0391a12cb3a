import contextlib
import math
import re
import timeit
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.telemetry.page import MAX_LINE, MAX_LINES, MAX_SERIES, MalformedPage, Sample, parse, wanted

PAGES = Path(__file__).parent / "pages"
K4 = (PAGES / "draft-k4-greedy20.txt").read_bytes()
REAL = sorted(PAGES.glob("*.txt"))
K4_BOUNDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640)
K4_TIMES = tuple((b, 0 if b < 0.02 else 17 if b == 0.02 else 20) for b in (*K4_BOUNDS, 2560, math.inf))
RUNNING = b'vllm:num_requests_running{engine="0"} 1\n'


def test_a_real_page_with_a_draft_model_gives_every_field() -> None:
    assert parse(K4) == Sample(
        process_start=1.79603539151e09,
        drafts=1134,
        draft_tokens=4536,
        accepted=852,
        accepted_per_position=(438, 184, 124, 106),
        generation_tokens=2000,
        prompt_tokens=116,
        decode_outputs=1134,
        decode_seconds=13.188360708998971,
        first_tokens=20,
        first_token_times=K4_TIMES,
        iterations=1154,
        finished=20,
        failed=0,
        http_requests=20,
        http_errors=0,
        running=0,
        waiting=0,
        kv_usage=0,
        kv_tokens=149_760,
    )


def test_without_speculation_its_families_are_absent_and_not_zero() -> None:
    off = parse((PAGES / "spec-off.txt").read_bytes())
    assert (off.drafts, off.draft_tokens, off.accepted, off.accepted_per_position) == (None, None, None, ())
    assert off.decode_outputs == 3960


def test_an_idle_server_that_speculates_shows_zeros_and_its_positions() -> None:
    idle = parse((PAGES / "draft-k4-idle.txt").read_bytes())
    assert (idle.drafts, idle.accepted_per_position) == (0, (0, 0, 0, 0))


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_the_wanted_lines_alone_give_the_same_sample(path: Path) -> None:
    page = path.read_bytes()
    kept = [line for line in page.splitlines() if wanted(line)]
    assert parse(b"\n".join(kept)) == parse(page)
    assert len(kept) < 50


@pytest.mark.parametrize(
    "line",
    [
        b"# HELP vllm:num_requests_running Number of requests",
        b'vllm:num_requests_waiting_by_reason{reason="capacity"} 0',
        b"vllm:spec_decode_num_drafts_created 1.7e9",
        b'vllm:inter_token_latency_seconds_bucket{le="0.01"} 3',
        b"http_requests_created 1",
        b"",
    ],
)
def test_neighbours_of_the_wanted_families_are_not_wanted(line: bytes) -> None:
    assert not wanted(line)


def test_series_are_summed_over_engines_but_fullness_is_the_worst() -> None:
    page = b"""
vllm:num_requests_running{engine="0"} 3
vllm:num_requests_running{engine="1"} 4
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0
vllm:cache_config_info{block_size="32",engine="1",num_gpu_blocks="50"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.5"} 3
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 4
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.5"} 5
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf"} 5
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 1
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 2
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="0"} 5
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="1"} 4
"""
    sample = parse(page)
    assert (sample.running, sample.kv_usage) == (7, 0.75)
    assert sample.accepted_per_position == (7, 5)
    assert sample.first_token_times == ((0.5, 8), (math.inf, 9))
    assert sample.kv_tokens == 100 * 16 + 50 * 32


def test_only_api_handlers_count_as_requests_and_only_5xx_as_errors() -> None:
    page = (
        RUNNING
        + b"""
http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 90
http_requests_total{handler="/v1/chat/completions",method="POST",status="5xx"} 6
http_requests_total{handler="/v1/chat/completions",method="POST",status="503"} 1
http_requests_total{handler="/v1/completions",method="POST",status="4xx"} 3
http_requests_total{handler="/health",method="GET",status="2xx"} 1000
http_requests_total{handler="none",method="GET",status="5xx"} 1000
"""
    )
    assert (parse(page).http_requests, parse(page).http_errors) == (100, 7)


def test_failed_requests_are_those_with_the_reason_error() -> None:
    page = b"""
vllm:request_success_total{finished_reason="stop"} 5
vllm:request_success_total{finished_reason="error"} 2
"""
    assert (parse(page).finished, parse(page).failed) == (7, 2)


def test_an_unknown_number_of_gpu_blocks_is_unknown() -> None:
    assert parse(RUNNING + b'vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1').kv_tokens is None
    assert parse(RUNNING).kv_tokens is None
    assert parse(RUNNING + b'vllm:cache_config_info{num_gpu_blocks="9"} 1').kv_tokens is None
    one_of_two = b"""vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="9"} 1
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="None"} 1
"""
    assert parse(one_of_two).kv_tokens is None


@pytest.mark.parametrize("text", ["many", "auto", "", "-1", "nan", "1e99", "9" * 5000])
def test_a_setting_that_is_no_number_is_unknown_and_takes_nothing_else_with_it(text: str) -> None:
    page = RUNNING + b'vllm:cache_config_info{block_size="%s",num_gpu_blocks="9"} 1' % text.encode()
    assert (parse(page).running, parse(page).kv_tokens) == (parse(RUNNING).running, None)


def test_a_page_without_the_histogram_of_first_tokens_has_no_times() -> None:
    assert parse(RUNNING).first_token_times == ()


def test_without_process_and_creation_times_a_page_says_the_same_as_in_multiprocess_mode() -> None:
    """What several API servers leave out when they answer together."""
    text = re.sub(rb"^(process_|python_|\S+_created).*\n", b"", K4, flags=re.MULTILINE)
    assert len(text) < len(K4)
    assert parse(text) == replace(parse(K4), process_start=None)


@pytest.mark.parametrize("path", [path for path in REAL if "idle" not in path.stem], ids=lambda path: path.stem)
def test_the_times_of_a_real_server_are_as_many_as_its_first_tokens(path: Path) -> None:
    sample = parse(path.read_bytes())
    assert sample.first_token_times[-1] == (math.inf, sample.first_tokens)
    assert sample.first_tokens


def test_labels_may_hold_anything_that_the_format_can_escape() -> None:
    page = rb'vllm:num_requests_running{model_name="a\"b} 7\\",engine="0"} 2'
    assert parse(page).running == 2


def test_a_timestamp_behind_the_value_is_ignored() -> None:
    assert parse(b"vllm:num_requests_running 3 1700000000000\r\n").running == 3


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (b"", "no vLLM metrics"),
        (b"<html>404</html>", "no vLLM metrics"),
        (b"process_start_time_seconds 1\nhttp_requests_total 1", "no vLLM metrics"),
        (RUNNING + b"\xff\xfe", "not UTF-8"),
        (RUNNING + b"\x00", "binary"),
        (b"vllm:generation_tokens_total NaN", "not a number"),
        (b"vllm:generation_tokens_total +Inf", "not a number"),
        (b"vllm:generation_tokens_total 1e999", "not a number"),
        (b"vllm:generation_tokens_total -1", "not a number"),
        (b"vllm:generation_tokens_total 1_000", "not a number"),
        (b"vllm:generation_tokens_total 1e", "not a number"),
        (b"vllm:generation_tokens_total ", "no value"),
        (b"vllm:generation_tokens_total 1 2 3", "no value"),
        (b'vllm:generation_tokens_total{a="1" 2', "without an end"),
        (b'vllm:generation_tokens_total{a="1} 2', "bad labels"),
        (b'vllm:generation_tokens_total{a="1",a="2"} 2', "bad labels"),
        (b'vllm:generation_tokens_total{a="1" b="2"} 2', "bad labels"),
        (b'vllm:generation_tokens_total{a="1",b="2"} 1\nvllm:generation_tokens_total{b="2",a="1"} 1', "occurs twice"),
        (RUNNING + b'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 2', "positions are missing"),
        (RUNNING + b'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="x"} 2', "bad position"),
        (RUNNING + b'vllm:time_to_first_token_seconds_bucket{le="0.5"} 1', "not a histogram"),
        (RUNNING + b'vllm:time_to_first_token_seconds_bucket{le="soon"} 1', "not a number"),
        (RUNNING + b"vllm:time_to_first_token_seconds_bucket 1", "not a number"),
        (
            b'vllm:time_to_first_token_seconds_bucket{le="0.5"} 3\n'
            b'vllm:time_to_first_token_seconds_bucket{le="+Inf"} 2',
            "not a histogram",
        ),
        (RUNNING + b"x" * (MAX_LINE + 1), "longer than"),
        (RUNNING + b"\n" * (MAX_LINES + 1), "more than 100000 lines"),
        (b"".join(b'vllm:num_requests_running{engine="%d"} 1\n' % i for i in range(MAX_SERIES + 1)), "more than"),
    ],
)
def test_a_page_that_cannot_be_trusted_is_refused_with_its_reason(page: bytes, reason: str) -> None:
    with pytest.raises(MalformedPage, match=re.escape(reason)):
        parse(page)


def _never_anything_else(page: bytes) -> None:
    with contextlib.suppress(MalformedPage):
        assert isinstance(parse(page), Sample)


@given(st.binary(max_size=2000))
def test_any_bytes_give_a_sample_or_a_refusal(page: bytes) -> None:
    _never_anything_else(page)


@settings(max_examples=200)
@given(st.data())
def test_any_damage_to_a_real_page_gives_a_sample_or_a_refusal(data: st.DataObject) -> None:
    lines = [line for line in K4.splitlines() if wanted(line)]
    index = data.draw(st.integers(0, len(lines) - 1))
    start = data.draw(st.integers(0, len(lines[index])))
    end = data.draw(st.integers(start, len(lines[index])))
    lines[index] = lines[index][:start] + data.draw(st.binary(max_size=20)) + lines[index][end:]
    _never_anything_else(b"\n".join(lines))


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=8), st.permutations(range(8)))
def test_how_a_counter_is_spread_over_engines_does_not_matter(parts: list[int], order: list[int]) -> None:
    names = ("vllm:spec_decode_num_drafts_total", "vllm:generation_tokens_total", "vllm:num_requests_running")
    engines = [i for i in order if i < len(parts)]
    split = "".join(f'{name}{{engine="{i}"}} {parts[i]}\n' for name in names for i in engines)
    whole = "".join(f'{name}{{engine="0"}} {sum(parts)}\n' for name in names)
    assert parse(split.encode()) == parse(whole.encode())


def test_a_hostile_line_costs_no_more_than_its_length() -> None:
    hostile = b'vllm:generation_tokens_total{a="' + b"\\" * 30_000 + b'} } } " 1'
    digits = b"vllm:generation_tokens_total " + b"1" * 60_000 + b"x"
    for page in (hostile, digits):
        seconds = min(timeit.repeat(lambda page=page: _never_anything_else(page), number=1, repeat=3))
        assert seconds < 0.25  # quadratic time would be many seconds


def test_a_real_page_is_far_cheaper_than_splitting_every_line_of_it() -> None:
    everything = re.compile(r'([a-z_]+)="([^"]*)"')
    text = K4.decode()
    ours = min(timeit.repeat(lambda: parse(K4), number=5, repeat=7))
    full = min(timeit.repeat(lambda: [everything.findall(line) for line in text.splitlines()], number=5, repeat=7))
    assert ours < 2 * full
