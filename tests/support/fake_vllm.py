"""One vLLM server of a fake fleet: how a revision behaves, what its counters then say, and how it answers a prompt."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from specfleet.controller.probes import CHAT, Answer

TOKENS = 400  # of every answer
STEP_SECONDS = 0.012
BUCKETS = (0.25, 0.5, 1.0, 2.5, 5.0)  # seconds to the first token, besides infinity
PATIENCE = 60.0  # seconds until a client gives up
PROMPT, SLOW = 0.3, 4.0  # seconds that first tokens take


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How the pods of a revision behave. `accept` is the share of first drafted tokens that are accepted, each later
    one has `decay` times the chance of the one before."""

    start: float = 20.0  # seconds from scheduled to ready
    accept: float = 0.75
    decay: float = 0.85
    pace: float = 1.0  # of an engine step
    errors: float = 0.0  # share of requests answered with 500
    crash: bool = False  # exits instead of becoming ready
    garbage: bool = False  # one character over and over
    garbled: bool = False  # answers that read well and are not the model's
    template: bool = True  # the model has a chat template
    kv: float = 0.2  # of the KV cache in use
    blocks: int | None = 24_000  # of 16 tokens, in the KV cache; None is a page that does not say
    late: float = 0.0  # share of requests whose first token is slow
    timed: bool = True  # the page has the histogram of first tokens
    hang: bool = False  # takes requests, and no engine step is made
    dark: bool = False  # neither metrics nor probes can be reached

    def survival(self, length: int) -> tuple[float, ...]:
        """Chance that at least i + 1 drafted tokens are accepted, by i."""
        chances, alive = [], 1.0
        for position in range(length):
            alive *= self.accept * self.decay**position
            chances.append(alive)
        return tuple(chances)


@dataclass(slots=True)
class Server:
    """The counters of one container; `length` tokens are drafted per step, None is no speculation."""

    seed: str
    length: int | None
    started: float
    counts: dict[str, float] = field(default_factory=dict)
    positions: list[float] = field(default_factory=list)
    served: float = 0.0  # requests owed to whole numbers
    rate: float = 0.0  # requests per second, lately
    busy_until: float = 0.0
    probed: int = 0
    random: Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.positions = [0.0] * (self.length or 0)

    def serve(self, how: Behaviour, rate: float, start: float, seconds: float) -> None:
        """`seconds` of `rate` requests per second that begin at `start`."""
        if how.hang:
            self.rate, self.busy_until = rate, max(self.busy_until, start + seconds + PATIENCE if rate else 0.0)
            return
        self.served += rate * seconds
        requests, self.served = divmod(self.served, 1.0)
        self.rate = rate
        length, step = self._emitted(how), STEP_SECONDS * how.pace
        if rate:
            self.busy_until = start + seconds + TOKENS / length * step
            self.count("iterations", seconds / step)
        failed = round(requests * how.errors)
        self.answer(how, requests - failed, TOKENS)
        self.count("http_errors", failed)

    def answer(self, how: Behaviour, requests: float, tokens: int) -> None:
        """Whole answers of so many tokens, with one percent of noise."""
        if not requests:
            return
        noise, jitter = (max(0.5, self.random.gauss(1.0, 0.01)) for _ in range(2))
        survival = [chance * noise for chance in how.survival(self.length or 0)]
        outputs = requests * (tokens - 1) / (1 + sum(survival))
        self.count("http_ok", requests)
        self.count("first_tokens", requests)
        self.count("late", requests * how.late)
        self.count("generation", requests * tokens)
        self.count("outputs", outputs)
        self.count("seconds", outputs * STEP_SECONDS * how.pace * jitter)
        self.positions = [sum(pair) for pair in zip(self.positions, (outputs * s for s in survival), strict=True)]
        self.count("drafts", outputs if self.length else 0.0)

    def reply(self, how: Behaviour, path: str, body: dict[str, Any]) -> Answer:
        """The answer to one request, as vLLM words it: the same to the same prompt, whichever pod is asked."""
        if path == CHAT and not how.template:
            self.count("http_bad", 1)
            return Answer(None, "answered 400: there is no default chat template", wrong=True, status=400)
        prompt = body["messages"][0]["content"] if path == CHAT else body["prompt"]
        self.answer(how, 1, body["max_tokens"])
        self.probed += 1
        text = "!" * 40 if how.garbage else f"no, {prompt}" if how.garbled else f"an answer to {prompt}"
        if "response_format" in body:
            text = '{"city": "Paris"}'
        choice: dict[str, Any] = {"finish_reason": "stop" if "response_format" in body else "length"}
        choice |= {"message": {"role": "assistant", "content": text}} if path == CHAT else {"text": text}
        usage = {"prompt_tokens": 10, "completion_tokens": body["max_tokens"]}
        return Answer({"choices": [choice], "usage": usage}, status=200)

    def count(self, name: str, more: float) -> None:
        """Let a counter rise."""
        self.counts[name] = self.counts.get(name, 0.0) + more

    def running(self, how: Behaviour, now: float) -> int:
        """Requests in flight."""
        if now >= self.busy_until:
            return 0
        return max(1, round(self.rate * TOKENS / self._emitted(how) * STEP_SECONDS * how.pace))

    def page(self, how: Behaviour, now: float) -> bytes:
        """The metrics page, reduced to the families that are read."""
        get = lambda name: self.counts.get(name, 0.0)  # noqa: E731
        lines = {
            "process_start_time_seconds": self.started,
            "vllm:generation_tokens_total": get("generation"),
            "vllm:prompt_tokens_total": 10 * get("first_tokens"),
            "vllm:inter_token_latency_seconds_count": get("outputs"),
            "vllm:inter_token_latency_seconds_sum": get("seconds"),
            "vllm:time_to_first_token_seconds_count": get("first_tokens"),
            "vllm:iteration_tokens_total_count": get("iterations"),
            'vllm:request_success_total{finished_reason="stop"}': get("first_tokens"),
            'http_requests_total{handler="/v1/completions",status="2xx"}': get("http_ok"),
            'http_requests_total{handler="/v1/completions",status="4xx"}': get("http_bad"),
            'http_requests_total{handler="/v1/completions",status="5xx"}': get("http_errors"),
            "vllm:num_requests_running": self.running(how, now),
            "vllm:num_requests_waiting": 0,
            "vllm:kv_cache_usage_perc": how.kv,
        }
        if how.timed:
            every, prompt = get("first_tokens"), get("first_tokens") - get("late")
            within = {bound: every if bound >= SLOW else prompt if bound >= PROMPT else 0.0 for bound in BUCKETS}
            name = "vllm:time_to_first_token_seconds_bucket"
            lines |= {f'{name}{{le="{bound}"}}': n for bound, n in {**within, "+Inf": every}.items()}
        if how.blocks is not None:
            lines[f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{how.blocks}"}}'] = 1
        if self.length:
            lines |= {
                "vllm:spec_decode_num_drafts_total": get("drafts"),
                "vllm:spec_decode_num_draft_tokens_total": get("drafts") * self.length,
                "vllm:spec_decode_num_accepted_tokens_total": sum(self.positions),
            }
            name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
            lines |= {f'{name}{{position="{i}"}}': count for i, count in enumerate(self.positions)}
        return "".join(f"{name} {value}\n" for name, value in lines.items()).encode()

    def _emitted(self, how: Behaviour) -> float:
        return 1 + sum(how.survival(self.length or 0))
