"""Jobs for a simulated engine, and a reader for metrics pages, real and simulated ones alike."""

import re
from collections.abc import Callable
from random import Random

from specfleet.simulation import truth
from specfleet.simulation.counters import Counters
from specfleet.simulation.engine import Job, Settings
from specfleet.simulation.page import Exchange, Http, Identity, Process, render

PROCESS = Process((3, 11, 7), ((1, 2, 3), (4, 5, 6), (7, 8, 9)), 2e9, 6e8, 1.7e9, 7.85, 34, 20_000)
_SAMPLE = re.compile(r"^([\w:]+)(?:\{(.*)\})? (\S+)$")


class Page:
    """One metrics page; series are summed over their labels."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sums: dict[str, float] = {}
        self.positions: dict[int, float] = {}
        for line in text.splitlines():
            found = _SAMPLE.match(line)
            if found is None:
                continue
            name = found[1].removeprefix("vllm:")
            self.sums[name] = self.sums.get(name, 0.0) + float(found[3])
            position = re.search(r'position="(\d+)"', found[2] or "")
            if position and name == "spec_decode_num_accepted_tokens_per_pos_total":
                self.positions[int(position[1])] = float(found[3])

    def __getitem__(self, name: str) -> float:
        return self.sums[name]

    @property
    def acceptance_length(self) -> float:
        """Tokens emitted per step of a draft."""
        return 1 + self["spec_decode_num_accepted_tokens_total"] / self["spec_decode_num_drafts_total"]

    @property
    def speed(self) -> float:
        """Decode tokens per second of one request: (outputs + accepted) over time between outputs."""
        tokens = self["inter_token_latency_seconds_count"] + self["spec_decode_num_accepted_tokens_total"]
        return tokens / self["inter_token_latency_seconds_sum"]

    @property
    def survival(self) -> list[float]:
        """Share of drafts that accepted at least i + 1 tokens, by i."""
        drafts = self["spec_decode_num_drafts_total"]
        return [self.positions[position] / drafts for position in sorted(self.positions)]


def page_of(settings: Settings, counters: Counters, answers: int = 0, kv: float = 1.0) -> Page:
    """The simulated page with so many answers of /v1/completions."""
    http = Http()
    if answers:
        exchange = Exchange(1.7e9, {"2xx": answers}, 120.0 * answers, 700.0 * answers)
        for _ in range(answers):
            exchange.duration.observe(0.6)
            http.duration.observe(0.6)
        http.exchanges["/v1/completions", "POST"] = exchange
    return Page(render(Identity("tiny", settings.method, 1.7e9, kv), counters, http, PROCESS))


def job(settings: Settings, number: int, workload: str = "chat", output: int = 100, prompt: int = 60) -> Job:
    """Request `number` of a run: its predictability follows from the run's seed and the number."""
    tokens = truth.difficulty(Random(f"{settings.seed} {number}"), workload, settings.method)
    return Job(prompt, output, "length", output, tokens)


Run = Callable[..., Page]  # the fixture `run`: (settings, requests, mix, gap, dials) -> the page afterwards
