"""Reads one vLLM metrics page into one `Sample`, and refuses a page that it cannot trust. Pure."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

MAX_PAGE = 4 << 20  # bytes: a page of one engine is 52 kB, a server has at most a few dozen
MAX_LINE = 64 * 1024  # bytes; vLLM's longest line (cache_config_info) has about 2 kB
MAX_LINES = 100_000  # a page of one engine has 700; each takes the time of a look
MAX_VALUE = 1e15  # whole numbers are exact up to there; a server that decodes 1e6 tokens/s needs 30 years
MAX_SERIES = 2000  # wanted series on one page: 16 engines with 16 positions each need fewer than 1000

PROCESS_START = "process_start_time_seconds"
DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
ACCEPTED_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
GENERATION_TOKENS = "vllm:generation_tokens_total"
PROMPT_TOKENS = "vllm:prompt_tokens_total"
DECODE_OUTPUTS = "vllm:inter_token_latency_seconds_count"
DECODE_SECONDS = "vllm:inter_token_latency_seconds_sum"
FIRST_TOKENS = "vllm:time_to_first_token_seconds_count"
FIRST_TOKEN_TIMES = "vllm:time_to_first_token_seconds_bucket"
ITERATIONS = "vllm:iteration_tokens_total_count"  # a histogram whose own name ends in _total
FINISHED = "vllm:request_success_total"
HTTP_REQUESTS = "http_requests_total"
RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
KV_USAGE = "vllm:kv_cache_usage_perc"
CACHE_CONFIG = "vllm:cache_config_info"

_WANTED = frozenset(
    name.encode()
    for name in (
        PROCESS_START,
        DRAFTS,
        DRAFT_TOKENS,
        ACCEPTED,
        ACCEPTED_PER_POSITION,
        GENERATION_TOKENS,
        PROMPT_TOKENS,
        DECODE_OUTPUTS,
        DECODE_SECONDS,
        FIRST_TOKENS,
        FIRST_TOKEN_TIMES,
        ITERATIONS,
        FINISHED,
        HTTP_REQUESTS,
        RUNNING,
        WAITING,
        KV_USAGE,
        CACHE_CONFIG,
    )
)
# The value's pattern is unrolled so that a hostile line costs linear time.
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)="([^"\\]*(?:\\.[^"\\]*)*)"\s*(,|$)')
_NUMBER_CHARACTERS = frozenset("0123456789+-.eE")

Labels = dict[str, str]
Family = list[tuple[Labels, float]]
Families = dict[str, Family]


class MalformedPage(Exception):
    """The page cannot be trusted; the argument says why, in one line."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One server at one instant, summed over vLLM's `engine` label; None = that family is absent (off is not zero)."""

    process_start: float | None = None  # seconds since the epoch; absent in Prometheus' multiprocess mode
    drafts: float | None = None  # (request, step) pairs that had draft tokens to verify
    draft_tokens: float | None = None
    accepted: float | None = None  # draft tokens
    accepted_per_position: tuple[float, ...] = ()  # [i] = drafts of which at least i + 1 tokens were accepted
    generation_tokens: float | None = None
    prompt_tokens: float | None = None
    decode_outputs: float | None = None  # one per request and step after the first token, however many tokens it gave
    decode_seconds: float | None = None  # sum of the gaps before those outputs
    first_tokens: float | None = None
    first_token_times: tuple[tuple[float, float], ...] = ()  # (bound in s, first tokens within it), up to infinity
    iterations: float | None = None  # engine steps with an output
    finished: float | None = None  # requests, whatever the finished_reason
    failed: float | None = None  # requests with finished_reason "error"
    http_requests: float | None = None  # to handlers /v1/*
    http_errors: float | None = None  # of those, answered 5xx
    running: float | None = None  # requests, at this instant
    waiting: float | None = None
    kv_usage: float | None = None  # 0..1, the fullest engine's
    kv_tokens: float | None = None  # that fit into the KV cache, all engines; None while vLLM says "None"


def wanted(line: bytes) -> bool:
    """True if `line` is a sample of a family that `parse` reads; cheap enough to ask of every line as it arrives."""
    return line.partition(b"{")[0].partition(b" ")[0] in _WANTED


def parse(page: bytes) -> Sample:
    """Read a page in Prometheus' text format, whole or already reduced to its `wanted` lines.

    Raises MalformedPage, and nothing else, for any bytes that are not a page of a vLLM server.
    """
    families: Families = {}
    for name, labels, value in _series(page):
        families.setdefault(name, []).append((labels, value))
    if not any(name.startswith("vllm:") for name in families):
        raise MalformedPage("no vLLM metrics on the page")
    return _sample(families)


def _series(page: bytes) -> list[tuple[str, Labels, float]]:
    seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    series = []
    for line in _wanted_lines(page):
        name, labels, value = _parse_line(line)
        key = (name, frozenset(labels.items()))
        if key in seen:
            raise MalformedPage(f"{name} occurs twice with the same labels")
        seen.add(key)
        series.append((name, labels, value))
    return series


def _wanted_lines(page: bytes) -> list[str]:
    if b"\0" in page:
        raise MalformedPage("binary data")
    if page.count(b"\n") > MAX_LINES:
        raise MalformedPage(f"more than {MAX_LINES} lines")
    lines = page.split(b"\n")
    if max(map(len, lines)) > MAX_LINE:
        raise MalformedPage(f"a line is longer than {MAX_LINE} bytes")
    kept = [line for line in lines if wanted(line)]
    if len(kept) > MAX_SERIES:
        raise MalformedPage(f"{len(kept)} series of the families read, more than {MAX_SERIES}")
    try:
        page.decode()
        return [line.decode() for line in kept]
    except UnicodeDecodeError:
        raise MalformedPage("not UTF-8") from None


def _parse_line(line: str) -> tuple[str, Labels, float]:
    name, brace, rest = line.partition("{")
    if brace:
        inside, closing, after = rest.rpartition("}")
        if not closing:
            raise MalformedPage(f"{name}: labels without an end")
        labels = _parse_labels(name, inside)
    else:
        name, _, after = line.partition(" ")
        labels = {}
    words = after.split()
    if len(words) not in (1, 2):  # a second word is a timestamp
        raise MalformedPage(f"{name}: no value")
    return name, labels, _number(name, words[0])


def _parse_labels(name: str, text: str) -> Labels:
    labels: Labels = {}
    position = 0
    while position < len(text):
        match = _LABEL.match(text, position)
        if match is None or match[1] in labels:
            raise MalformedPage(f"{name}: bad labels")
        labels[match[1]] = match[2]
        position = match.end()
    return labels


def _number(name: str, text: str) -> float:
    """A value in 0..MAX_VALUE, as everything read here is; Python's own float() takes more (1_0, nan)."""
    try:
        value = float(text) if _NUMBER_CHARACTERS.issuperset(text) else math.nan
    except ValueError:
        value = math.nan
    if not 0 <= value <= MAX_VALUE:  # NaN fails too
        raise MalformedPage(f"{name}: {text[:40]!r} is not a number from 0 to {MAX_VALUE:g}")
    return value


def _sample(families: Families) -> Sample:
    return Sample(
        process_start=_max(families, PROCESS_START),
        drafts=_sum(families, DRAFTS),
        draft_tokens=_sum(families, DRAFT_TOKENS),
        accepted=_sum(families, ACCEPTED),
        accepted_per_position=_per_position(families.get(ACCEPTED_PER_POSITION, [])),
        generation_tokens=_sum(families, GENERATION_TOKENS),
        prompt_tokens=_sum(families, PROMPT_TOKENS),
        decode_outputs=_sum(families, DECODE_OUTPUTS),
        decode_seconds=_sum(families, DECODE_SECONDS),
        first_tokens=_sum(families, FIRST_TOKENS),
        first_token_times=_times(families.get(FIRST_TOKEN_TIMES, [])),
        iterations=_sum(families, ITERATIONS),
        finished=_sum(families, FINISHED),
        failed=_sum(families, FINISHED, lambda labels: labels.get("finished_reason") == "error"),
        http_requests=_sum(families, HTTP_REQUESTS, _is_api),
        http_errors=_sum(families, HTTP_REQUESTS, lambda labels: _is_api(labels) and _is_server_error(labels)),
        running=_sum(families, RUNNING),
        waiting=_sum(families, WAITING),
        kv_usage=_max(families, KV_USAGE),
        kv_tokens=_kv_cache(families.get(CACHE_CONFIG, []), "num_gpu_blocks", "block_size"),
    )


def _is_api(labels: Labels) -> bool:
    return labels.get("handler", "").startswith("/v1/")


def _is_server_error(labels: Labels) -> bool:
    return labels.get("status", "").startswith("5")  # "5xx", or "503" where codes are not grouped


def _sum(families: Families, name: str, of: Callable[[Labels], bool] = lambda _: True) -> float | None:
    """Sum of the family's series that `of` accepts; 0 if it accepts none of them, None without the family."""
    if name not in families:
        return None
    return math.fsum(value for labels, value in families[name] if of(labels))


def _max(families: Families, name: str) -> float | None:
    return max(value for _, value in families[name]) if name in families else None


def _per_position(family: Family) -> tuple[float, ...]:
    positions: dict[int, list[float]] = {}
    for labels, value in family:
        text = labels.get("position", "")
        if not (text.isascii() and text.isdigit() and len(text) <= 4):
            raise MalformedPage(f"{ACCEPTED_PER_POSITION}: bad position {text[:40]!r}")
        positions.setdefault(int(text), []).append(value)
    if sorted(positions) != list(range(len(positions))):
        raise MalformedPage(f"{ACCEPTED_PER_POSITION}: positions are missing")  # vLLM makes all of them at start
    return tuple(math.fsum(positions[i]) for i in range(len(positions)))


def _times(family: Family) -> tuple[tuple[float, float], ...]:
    """A histogram's buckets, summed over engines; () where the page has none."""
    buckets: dict[float, list[float]] = {}
    for labels, value in family:
        buckets.setdefault(_bound(labels.get("le", "")), []).append(value)
    times = tuple((bound, math.fsum(buckets[bound])) for bound in sorted(buckets))
    if times and (times[-1][0] != math.inf or any(more[1] < less[1] for less, more in pairwise(times))):
        raise MalformedPage(f"{FIRST_TOKEN_TIMES}: not a histogram")
    return times


def _bound(text: str) -> float:
    return math.inf if text == "+Inf" else _number(FIRST_TOKEN_TIMES, text)


def _kv_cache(family: Family, *factors: str) -> float | None:
    """Sum over engines of the product of so many labels; None unless all of them say all of it in numbers: what vLLM
    writes into this family is the text of its settings, and no counter that could be wrong."""
    try:
        engines = [[_number(CACHE_CONFIG, labels.get(factor, "None")) for factor in factors] for labels, _ in family]
    except MalformedPage:
        return None
    return math.fsum(map(math.prod, engines)) if engines else None
