"""The simulated server speaks vLLM's API and stops, fails and misbehaves as vLLM does."""

import json
import re
import time
import urllib.error
from collections.abc import Iterator
from typing import Any

import pytest

from simserver import SimServer, events
from simulated import Page
from specfleet.telemetry.page import MalformedPage, parse

LONG = {"prompt": "go on", "max_tokens": 150, "temperature": 0, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def server() -> Iterator[SimServer]:
    flags = ("--served-model-name", "q", "--max-model-len", "4096", "--tensor-parallel-size=4", "--enforce-eager")
    with SimServer(*flags, model="Qwen/Qwen3-8B") as running:
        yield running


@pytest.fixture
def dialled(server: SimServer) -> Iterator[SimServer]:
    """The shared server; its dials go back afterwards."""
    before = json.loads(server.get("/sim"))
    yield server
    server.turn(**before)


def page(server: SimServer) -> Page:
    return Page(server.get("/metrics"))


def test_every_answer_names_the_pod(server: SimServer) -> None:
    for path in ("/health", "/metrics", "/v1/models"):
        with server.open(path) as answer:
            assert answer.headers["x-served-by"] == "pod-a"
    with pytest.raises(urllib.error.HTTPError) as caught:
        server.open("/nothing")
    with caught.value:
        assert caught.value.headers["x-served-by"] == "pod-a"


def test_models_and_version(server: SimServer) -> None:
    (model,) = json.loads(server.get("/v1/models"))["data"]
    assert (model["id"], model["root"], model["max_model_len"]) == ("q", "Qwen/Qwen3-8B", 4096)
    assert json.loads(server.get("/version")) == {"version": "0.32.0"}


def test_sums_come_out_right(server: SimServer) -> None:
    assert "4" in server.text("2+2=")
    assert "56" in server.text("What is 7 * 8?")


def chat(server: SimServer, content: str = "tell", **given: Any) -> Any:
    body = {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 20, **given}
    with server.open("/v1/chat/completions", body) as answer:
        return json.loads(answer.read())


def refusal(server: SimServer, path: str, body: Any) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as caught:
        server.open(path, body)
    with caught.value as error:
        return error.code, json.loads(error.read())["error"]["message"]


TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"required": ["city"]}}}]
MESSAGES = {"messages": [{"role": "user", "content": "tell"}]}


def test_a_model_without_a_chat_template_refuses_chats_and_completes(dialled: SimServer) -> None:
    dialled.turn(chat_template=False)
    status, message = refusal(dialled, "/v1/chat/completions", MESSAGES)
    assert (status, "chat template" in message) == (400, True)
    assert dialled.text("tell")


def test_an_object_that_is_asked_for_is_one_unless_it_is_cut(server: SimServer) -> None:
    form = {"response_format": {"type": "json_object"}}
    choice = chat(server, **form)["choices"][0]
    assert (list(json.loads(choice["message"]["content"])), choice["finish_reason"]) == (["answer"], "stop")
    cut = chat(server, **form, **{"max_tokens": 2})["choices"][0]
    assert (cut["message"]["content"][:1], cut["finish_reason"]) == ("{", "length")
    assert json.loads(server.text("tell", **form))


def test_tools_are_refused_where_the_command_line_does_not_enable_them(server: SimServer) -> None:
    status, message = refusal(server, "/v1/chat/completions", {**MESSAGES, "tools": TOOLS})
    assert (status, "--enable-auto-tool-choice" in message) == (400, True)
    assert chat(server, tools=TOOLS, tool_choice="none")["choices"][0]["message"]["tool_calls"] == []


def test_a_tool_that_is_offered_is_called_with_its_arguments() -> None:
    with SimServer("--enable-auto-tool-choice", "--tool-call-parser", "hermes") as server:
        choice = chat(server, tools=TOOLS, tool_choice="auto")["choices"][0]
    function = choice["message"]["tool_calls"][0]["function"]
    assert (function["name"], list(json.loads(function["arguments"]))) == ("weather", ["city"])
    assert choice["finish_reason"] == "tool_calls"


def test_a_server_that_garbles_says_something_else_in_good_words(dialled: SimServer) -> None:
    before = dialled.text("tell", max_tokens=20)
    assert chat(dialled)["choices"][0]["message"]["content"] == before, "a chat is answered as its prompt is"
    dialled.turn(garbled=True)
    after = dialled.text("tell", max_tokens=20)
    assert after != before
    assert len(set(after.split())) > 10
    assert dialled.text("tell", max_tokens=20) == after


def test_greedy_answers_repeat_and_sampled_ones_do_not(server: SimServer) -> None:
    assert server.text("tell", max_tokens=20) == server.text("tell", max_tokens=20)
    assert server.text("tell", max_tokens=20, temperature=1) != server.text("tell", max_tokens=20, temperature=1)


def test_pods_of_one_target_agree_whatever_they_speculate(server: SimServer) -> None:
    with SimServer(model="Qwen/Qwen3-8B", speculation=None, VLLM_SIM_NAME="pod-b", VLLM_SIM_SEED="2") as other:
        assert other.text("tell", max_tokens=30) == server.text("tell", max_tokens=30)


def test_usage_counts_and_limits_hold(server: SimServer) -> None:
    answer = server.complete("a" * 40, max_tokens=7, ignore_eos=True)
    assert answer["usage"] == {"prompt_tokens": 10, "completion_tokens": 7, "total_tokens": 17}
    assert answer["choices"][0]["finish_reason"] == "length"


def test_a_stop_text_ends_the_answer_before_it(server: SimServer) -> None:
    words = server.text("tell", max_tokens=30).split(" ")
    answer = server.complete("tell", max_tokens=30, stop=words[5])["choices"][0]
    assert (answer["text"], answer["finish_reason"], answer["stop_reason"]) == (
        " ".join(words[:5]) + " ",
        "stop",
        words[5],
    )


def test_stream_and_whole_answer_are_the_same_text(server: SimServer) -> None:
    body = {"prompt": "tell", "max_tokens": 30, "temperature": 0, "stream": True}
    with server.open("/v1/completions", {**body, "stream_options": {"include_usage": True}}) as answer:
        *chunks, usage, done = events(answer)
    assert done is None
    assert usage is not None
    assert usage["usage"]["completion_tokens"] == 30
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks if chunk) == server.text("tell", max_tokens=30)


def test_chat_streams_deltas_after_the_role(server: SimServer) -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "2+2="}], "temperature": 0, "stream": True}
    with server.open("/v1/chat/completions", body) as answer:
        deltas = [event["choices"][0]["delta"] for event in events(answer) if event]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "4" in "".join(delta["content"] for delta in deltas)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"model": "other", "prompt": "x"}, 404),
        ({"model": "q"}, 400),
        ({"prompt": "x", "max_tokens": 0}, 400),
        ({"prompt": "x", "max_tokens": 5000}, 400),
        ({"prompt": "x", "min_p": 0.1}, 400),
        (["x"], 400),
    ],
)
def test_bad_requests_get_their_status(server: SimServer, body: Any, status: int) -> None:
    assert server.status("/v1/completions", body) == status


def test_an_api_key_guards_the_api_and_nothing_else() -> None:
    with SimServer("--api-key", "secret") as server:
        assert server.status("/v1/models") == 401
        assert server.status("/v1/models", Authorization="Bearer wrong") == 401
        assert server.status("/v1/models", Authorization="Bearer secret") == 200
        assert server.status("/health") == server.status("/metrics") == 200


def test_the_page_counts_what_was_asked(server: SimServer) -> None:
    server.complete("the first makes the series", max_tokens=1)
    before = page(server)
    server.complete("count me", max_tokens=40, ignore_eos=True)
    after = page(server)
    grown = {name: after[name] - before[name] for name in after.sums if name in before.sums}
    assert grown["generation_tokens_total"] == 40
    assert grown["request_success_total"] == grown["http_requests_total"] == 1
    outputs = grown["inter_token_latency_seconds_count"] + grown["time_to_first_token_seconds_count"]
    assert 40 <= outputs + grown["spec_decode_num_accepted_tokens_total"] <= 43
    assert 0.010 < grown["inter_token_latency_seconds_sum"] / grown["inter_token_latency_seconds_count"] < 0.020


def aborts(server: SimServer) -> int:
    found = re.search(r'finished_reason="abort",model_name="q"} (\d+)', server.get("/metrics"))
    assert found is not None
    return int(found[1])


def test_a_client_that_leaves_is_an_abort(server: SimServer) -> None:
    before, deadline = aborts(server), time.monotonic() + 10
    with server.open("/v1/completions", {**LONG, "max_tokens": 3000}) as answer:
        answer.readline()
    while (now := aborts(server)) == before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert now == before + 1
    assert page(server)["num_requests_running"] == 0


# Faults.


def test_acceptance_can_be_taken_away_while_it_runs(dialled: SimServer) -> None:
    dialled.turn(acceptance=0)
    before = page(dialled)
    dialled.complete("x", max_tokens=20, ignore_eos=True)
    after = page(dialled)
    for name, growth in (("spec_decode_num_drafts_total", 19), ("spec_decode_num_accepted_tokens_total", 0)):
        assert after[name] - before[name] == growth


def test_a_draft_can_be_named_to_accept_nothing() -> None:
    with SimServer(
        speculation='{"method":"eagle3","model":"org/accepts-nothing","num_speculative_tokens":2}'
    ) as server:
        server.complete("x", max_tokens=20, ignore_eos=True)
        assert page(server).positions == {0: 0.0, 1: 0.0}


def test_garbage_is_one_token_over_and_over(dialled: SimServer) -> None:
    dialled.turn(garbage=True)
    assert set(dialled.text("2+2=", max_tokens=16, ignore_eos=True)) == {"!"}


def test_errors_dial_fails_requests(dialled: SimServer) -> None:
    dialled.turn(errors=1)
    assert dialled.status("/v1/completions", {"prompt": "x"}) == 500
    assert dialled.status("/health") == 200


def test_a_hang_keeps_health_and_stops_answers(dialled: SimServer) -> None:
    dialled.turn(hang=True)
    body = {"prompt": "x", "max_tokens": 4, "stream": True}
    with dialled.open("/v1/completions", body) as answer:
        before = page(dialled)["iteration_tokens_total_count"]
        assert dialled.status("/health") == 200
        assert page(dialled)["iteration_tokens_total_count"] == before
        dialled.turn(hang=False)
        assert events(answer)[-1] is None


def test_unknown_dials_are_refused(server: SimServer) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        server.turn(metrics="nonsense")
    with caught.value:
        assert caught.value.code == 400


def test_metrics_page_faults(dialled: SimServer) -> None:
    dialled.turn(metrics="missing")
    assert dialled.status("/metrics") == 404
    dialled.turn(metrics="binary")
    with dialled.open("/metrics") as answer, pytest.raises(UnicodeDecodeError):
        answer.read().decode()
    for fault, size in (("huge", 3_000_000), ("endless", 200_000)):
        dialled.turn(metrics=fault)
        with dialled.open("/metrics") as answer:
            assert len(answer.read(size)) == size
    for fault in ("nan", "negative", "duplicate"):
        dialled.turn(metrics=fault)
        with dialled.open("/metrics") as answer, pytest.raises(MalformedPage, match="generation_tokens"):
            parse(answer.read())
    dialled.turn(metrics="redirect")
    with pytest.raises(urllib.error.URLError, match="refused"):
        dialled.open("/metrics")  # urllib follows it, to where nobody listens
    dialled.turn(metrics="slow")
    with dialled.open("/metrics") as answer:
        assert answer.readline().startswith(b"# HELP")


def test_a_crash_exits_1() -> None:
    with SimServer() as other:
        other.turn(crash=True)
        assert other.process.wait(5) == 1


# SIGTERM.


def test_with_a_shutdown_timeout_streams_end_and_new_requests_get_500() -> None:
    with SimServer("--shutdown-timeout", "20") as server, server.open("/v1/completions", LONG) as answer:
        answer.readline()
        server.terminate()
        assert server.process.poll() is None
        while server.status("/v1/completions", {"prompt": "x"}) != 500:
            pass  # the signal is on its way
        with pytest.raises(urllib.error.HTTPError) as caught:
            server.complete("x")
        with caught.value as refused:
            assert "cannot schedule new futures after shutdown" in refused.read().decode()
        assert server.status("/health") == server.status("/metrics") == 200
        *_, last, done = events(answer)
        assert last is not None
        assert last["choices"][0]["finish_reason"] == "length"
        assert done is None
        assert server.process.wait(5) == 0


def test_a_stream_longer_than_the_timeout_is_cut_with_an_error() -> None:
    body = {**LONG, "max_tokens": 3000}
    with SimServer("--shutdown-timeout", "0.3") as server, server.open("/v1/completions", body) as answer:
        answer.readline()
        server.terminate()
        *_, last, done = events(answer)
        assert last is not None
        assert last["error"]["code"] == 500
        assert done is None
        assert server.process.wait(5) == 0


def test_without_a_timeout_streams_are_aborted_and_the_port_closes() -> None:
    with SimServer() as server, server.open("/v1/completions", {**LONG, "max_tokens": 3000}) as answer:
        answer.readline()
        server.terminate()
        *_, last, _ = events(answer)
        assert last is not None
        assert last["choices"][0]["finish_reason"] == "abort"
        assert server.process.wait(5) == 0
        with pytest.raises(urllib.error.URLError, match="refused"):
            server.get("/health")
