"""The same greedy prompts through a real vLLM on CPU and through the simulated server: the same identities hold.

They are what the operator's evidence rests on: how counters of tokens, steps and drafts relate.
"""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from harness import vllm_host
from harness.images import PROJECT
from harness.process import free_ports
from harness.witness import counters

pytestmark = pytest.mark.vllm
TOKENS = 60  # of every answer
PROMPTS = (
    "The scheduler decides which", "In the event of an error,", "Usage: this option", "Each request is",
    "When a server stops,", "Returns the number of", "The quick brown", "If the file does not exist,",
    "A list of all the values that", "This module provides an interface to",
    "def main():\n", "import os\n", "class Foo(object):\n", "for line in file:\n    ", "if value is None:\n    raise ",
    "def __init__(self, name):\n", "    return self._", "try:\n    import ", "with open(path) as file:\n",
    "assert isinstance(value, ",
)  # fmt: skip
DRAFT_MODEL = {"method": "draft_model", "model": str(vllm_host.MODELS / "tiny-draft"), "num_speculative_tokens": 4}
NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 2}
CONFIGS: dict[str, dict[str, Any]] = {"draft_model": DRAFT_MODEL, "ngram": NGRAM}


@dataclass(frozen=True, slots=True)
class Run:
    """What the prompts did to a server's counters. `config`: its speculative config."""

    config: dict[str, Any]
    page: dict[str, float]

    def __getitem__(self, name: str) -> float:
        return self.page[f"vllm:{name}"]

    @property
    def drafts(self) -> float:
        return self["spec_decode_num_drafts_total"]

    @property
    def drafted(self) -> float:
        return self["spec_decode_num_draft_tokens_total"]

    @property
    def accepted(self) -> float:
        return self["spec_decode_num_accepted_tokens_total"]


@pytest.fixture(
    scope="module", params=[(kind, method) for method in CONFIGS for kind in ("vllm", "simulator")], ids=str
)
def run(request: pytest.FixtureRequest) -> Run:
    kind, method = request.param
    serve = vllm_host.serve if kind == "vllm" else _simulator
    with serve("--speculative-config", json.dumps(CONFIGS[method])) as url:
        before = _page(url)
        answered = sum(_ask(url, prompt) for prompt in PROMPTS)
        after = _settled(url, before, answered)
    return Run(CONFIGS[method], {name: value - before.get(name, 0.0) for name, value in after.items()})


@contextmanager
def _simulator(*arguments: str) -> Iterator[str]:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, str(PROJECT / "images/vllm-sim/vllm"), "serve", "tiny", "--port", str(port), *arguments]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        vllm_host.wait_until_healthy(url, 60, lambda: None)
        yield url
    finally:
        server.kill()
        server.wait()


def _page(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        return counters(answer.read().decode())


def _ask(url: str, prompt: str) -> int:
    """Tokens of the answer."""
    body = {"model": "tiny", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as answer:
        return int(json.load(answer)["usage"]["completion_tokens"])


def _settled(url: str, before: dict[str, float], answered: int) -> dict[str, float]:
    """The page that has all the tokens of the answers; counters come a moment after the last of them."""
    name, end = "vllm:generation_tokens_total", time.monotonic() + 30
    while (page := _page(url))[name] - before.get(name, 0.0) < answered and time.monotonic() < end:
        time.sleep(0.2)
    return page


def test_every_token_is_counted(run: Run) -> None:
    assert run["generation_tokens_total"] == TOKENS * len(PROMPTS)
    assert run["time_to_first_token_seconds_count"] == len(PROMPTS)


def test_tokens_are_first_tokens_decode_outputs_and_accepted_ones(run: Run) -> None:
    """What was accepted beyond the last token of an answer makes the right side a little larger."""
    parts = run["inter_token_latency_seconds_count"] + run["time_to_first_token_seconds_count"] + run.accepted
    assert 1.0 <= parts / run["generation_tokens_total"] < 1.10


def test_accepted_tokens_are_the_sum_over_positions(run: Run) -> None:
    assert run.accepted == run["spec_decode_num_accepted_tokens_per_pos_total"] > 0


def test_a_draft_model_always_drafts_the_proposal_length_and_n_grams_at_most(run: Run) -> None:
    most = run.config["num_speculative_tokens"] * run.drafts
    assert run.drafted == most if run.config["method"] == "draft_model" else 0 < run.drafted <= most


def test_n_grams_draft_in_some_steps_and_a_draft_model_in_about_all(run: Run) -> None:
    coverage = run.drafts / run["inter_token_latency_seconds_count"]
    if run.config["method"] == "ngram":
        assert 0 < coverage < 0.95
    else:
        assert coverage == pytest.approx(1.0, abs=0.05)
