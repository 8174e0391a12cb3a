"""Decides what a continuous-batching engine emits and counts, step by step, in virtual time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from specfleet.simulation import truth
from specfleet.simulation.counters import Counters, Gauges
from specfleet.simulation.dials import DEFAULT, Dials


@dataclass(frozen=True, slots=True)
class Settings:
    """How the engine was started. method None is no speculation; schedule rows are (from batch, to batch, tokens)."""

    seed: str = "0"
    method: str | None = None
    length: int = 0
    schedule: tuple[tuple[int, int, int], ...] = ()
    max_num_seqs: int = 256
    max_model_len: int = 32768
    max_batched_tokens: int = 8192
    cost: truth.StepCost = truth.DENSE

    def length_at(self, batch: int) -> int:
        """Tokens to propose per request at this batch size; gaps and the tail of a schedule keep the row before."""
        if self.method not in truth.SCHEDULED or not self.schedule:
            return self.length
        rows = [tokens for first, _, tokens in self.schedule if first <= max(1, batch)]
        return min(self.length, rows[-1]) if rows else self.length


@dataclass(frozen=True, slots=True)
class Job:
    """One request as the engine sees it: sizes in tokens, why it will end, and how predictable its tokens are."""

    prompt_tokens: int
    output_tokens: int
    finish_reason: str
    max_tokens: int
    difficulty: truth.Difficulty


@dataclass(frozen=True, slots=True)
class Output:
    """What one step gave one request: `tokens` more, at virtual time `at`."""

    request: int
    tokens: int
    finished: bool
    at: float


@dataclass(slots=True)
class _Request:
    number: int
    job: Job
    arrived: float
    admitted: float = 0.0
    prefilled: int = 0
    generated: int = 0
    first_at: float = 0.0
    last_at: float = 0.0
    gone: bool = False


@dataclass(slots=True)
class _Step:
    ends: float
    prefills: list[tuple[_Request, int]]
    decodes: list[tuple[_Request, int]]


@dataclass(slots=True)
class Engine:
    """Continuous batching: every step decodes all running requests and prefills waiting ones within a token budget.

    Time only moves through `advance`; step durations are the truth model's, so a slow host changes when outputs are
    seen but not what is measured. Calls carry times that never go back.
    """

    settings: Settings
    dials: Dials = DEFAULT
    counters: Counters = field(init=False)
    _random: Random = field(init=False)
    _pace: float = field(init=False)
    _length: int = field(init=False)
    _waiting: deque[_Request] = field(default_factory=deque)
    _running: list[_Request] = field(default_factory=list)
    _step: _Step | None = None
    _clock: float = 0.0
    _submitted: int = 0

    def __post_init__(self) -> None:
        self._random = Random(f"engine {self.settings.seed}")
        self._pace = max(0.5, self._random.gauss(1.0, self.settings.cost.spread))
        self._length = self.settings.length_at(1)
        positions = self.settings.length if self.settings.method is not None else 0
        self.counters = Counters(positions, self.settings.max_model_len)

    def submit(self, now: float, job: Job) -> int:
        """Queue a request at `now`; outputs carry the number returned."""
        self._submitted += 1
        self._waiting.append(_Request(self._submitted, job, arrived=now))
        if self._step is None and not self.dials.hang:
            self._begin(max(now, self._clock))
        return self._submitted

    def abort(self, now: float, number: int) -> None:
        """Forget a request, as when its client has left. Unknown numbers are ignored."""
        for queue in (self._waiting, self._running):
            for request in [r for r in queue if r.number == number]:
                request.gone = True
                queue.remove(request)
                self.counters.finished["abort"] += 1
        self._clock = max(self._clock, now)
        if not self._running and not self._waiting and not self.dials.hang:
            self._report()

    def next_event(self) -> float | None:
        """When the step in flight ends, or None while nothing runs."""
        return None if self._step is None else self._step.ends

    def advance(self, until: float) -> list[Output]:
        """Finish every step that ends by `until` and return what they gave, oldest first."""
        outputs: list[Output] = []
        if self.dials.hang:
            if self._step is not None:
                self._step.ends = max(self._step.ends, until)
            self._clock = until
            return outputs
        if self._step is None and (self._waiting or self._running):
            self._begin(self._clock)
        while self._step is not None and self._step.ends <= until:
            outputs += self._finish(self._step)
        self._clock = max(self._clock, until)
        return outputs

    def _begin(self, now: float) -> None:
        """Start the next step at `now` with whatever can run, or leave the engine idle."""
        self._admit(now)
        decodes = [(r, self._propose(r)) for r in self._running if r.prefilled >= r.job.prompt_tokens]
        prefills = self._prefills(self.settings.max_batched_tokens - sum(1 + tokens for _, tokens in decodes))
        if not decodes and not prefills:
            self._step = None
            return
        self._step = _Step(now + self._duration(decodes, prefills), prefills, decodes)
        # vLLM looks its schedule up with this step's requests and drafts that many tokens for the next one.
        self._length = self.settings.length_at(len(decodes) + len(prefills))

    def _admit(self, now: float) -> None:
        while self._waiting and len(self._running) < self.settings.max_num_seqs:
            request = self._waiting.popleft()
            request.admitted = now
            self._running.append(request)

    def _propose(self, request: _Request) -> int:
        if self.settings.method is None or self._length == 0:
            return 0
        return truth.proposed(request.job.difficulty, self.settings.method, self._length)

    def _prefills(self, budget: int) -> list[tuple[_Request, int]]:
        chunks: list[tuple[_Request, int]] = []
        for request in self._running:
            left = request.job.prompt_tokens - request.prefilled
            if left > 0 and budget > 0:
                chunks.append((request, min(left, budget)))
                budget -= chunks[-1][1]
        return chunks

    def _duration(self, decodes: list[tuple[_Request, int]], prefills: list[tuple[_Request, int]]) -> float:
        draft_tokens = sum(tokens for _, tokens in decodes)
        load = truth.Load(
            batch=len(decodes),
            draft_tokens=draft_tokens,
            passes=self._passes() if draft_tokens else 0,
            kv_tokens=sum(r.prefilled + r.generated for r, _ in decodes),
            prefill_tokens=sum(tokens for _, tokens in prefills),
        )
        noise = max(0.5, self._random.gauss(1.0, self.settings.cost.jitter))
        return truth.step_seconds(self.settings.cost, load) * noise * self._pace / self.dials.speed

    def _passes(self) -> int:
        if self.settings.method is None:
            return 0
        return {"token": self._length, "block": 1, "none": 0}[truth.DRAFTERS[self.settings.method].passes]

    def _finish(self, step: _Step) -> list[Output]:
        """Account for a step that has ended, begin the next one, and return the outputs."""
        outputs = [
            self._decoded(request, proposed, step.ends) for request, proposed in step.decodes if not request.gone
        ]
        prefilled = [(request, tokens) for request, tokens in step.prefills if not request.gone]
        for request, tokens in prefilled:
            request.prefilled += tokens
            if request.prefilled >= request.job.prompt_tokens:
                outputs.append(self._first(request, step.ends))
        prompt_tokens = sum(tokens for _, tokens in prefilled)
        self.counters.prompt_tokens += prompt_tokens
        self.counters.observe("iteration_tokens_total", prompt_tokens + sum(output.tokens for output in outputs))
        self._running = [request for request in self._running if not request.gone]
        self._begin(step.ends)
        self._report()
        return outputs

    def _first(self, request: _Request, at: float) -> Output:
        request.first_at = at
        self.counters.observe("time_to_first_token_seconds", at - request.arrived)
        return self._emit(request, 1, at)

    def _decoded(self, request: _Request, proposed: int, at: float) -> Output:
        """One decode output: the accepted draft tokens and the one that the target adds; what is past a stop is cut."""
        accepted = 0
        if proposed:
            method = self.settings.method or ""
            accepted = truth.accepted(request.job.difficulty, method, proposed, self.dials.acceptance)
            self.counters.draft(proposed, accepted)
        self.counters.observe("inter_token_latency_seconds", at - request.last_at)
        return self._emit(request, accepted + 1, at)

    def _emit(self, request: _Request, tokens: int, at: float) -> Output:
        request.job.difficulty.passed(tokens)
        tokens = min(tokens, request.job.output_tokens - request.generated)
        request.generated += tokens
        request.last_at = at
        self.counters.generation_tokens += tokens
        finished = request.generated >= request.job.output_tokens
        if finished:
            request.gone = True
            self._completed(request, at)
        return Output(request.number, tokens, finished, at)

    def _completed(self, request: _Request, at: float) -> None:
        decode = at - request.first_at
        observed = {
            "request_prompt_tokens": request.job.prompt_tokens,
            "request_generation_tokens": request.generated,
            "request_max_num_generation_tokens": request.generated,
            "request_params_n": 1,
            "request_params_max_tokens": request.job.max_tokens,
            "request_time_per_output_token_seconds": decode / max(1, request.generated - 1),
            "e2e_request_latency_seconds": at - request.arrived,
            "request_queue_time_seconds": request.admitted - request.arrived,
            "request_inference_time_seconds": at - request.admitted,
            "request_prefill_time_seconds": request.first_at - request.admitted,
            "request_decode_time_seconds": decode,
            "request_num_preemptions": 0,
            "request_prefill_kv_computed_tokens": request.job.prompt_tokens,
        }
        for name, value in observed.items():
            self.counters.observe(name, value)
        self.counters.finished[request.job.finish_reason] += 1

    def _report(self) -> None:
        blocks = sum(-(-(r.prefilled + r.generated) // truth.BLOCK_SIZE) for r in self._running)
        usage = blocks / truth.kv_blocks(self.settings.method, self.dials.kv)
        self.counters.gauges = Gauges(len(self._running), len(self._waiting), usage)
