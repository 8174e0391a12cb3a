"""Decides how a server's counters read as vLLM 0.32's /metrics page, family by family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from specfleet.simulation import truth
from specfleet.simulation.counters import Counters, Histogram

Labels = dict[str, str]
_HTTP_EDGES = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5),
    *(3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0, 30.0, 60.0),
)


@dataclass(frozen=True, slots=True)
class Identity:
    """What labels the page: names, speculation (method None: off) and when it started (seconds, Unix epoch); `kv` is
    the share of the usual KV cache that it found room for."""

    model_name: str
    method: str | None
    created: float
    kv: float = 1.0

    @property
    def labels(self) -> Labels:
        """Labels of every series of the engine."""
        return {"engine": "0", "model_name": self.model_name}


@dataclass(frozen=True, slots=True)
class Process:
    """Facts on the Python process, as prometheus_client exports them. gc: per generation (collections, collected,
    uncollectable)."""

    python: tuple[int, int, int]
    gc: tuple[tuple[int, int, int], ...]
    virtual_bytes: float
    resident_bytes: float
    started: float
    cpu_seconds: float
    open_fds: int
    max_fds: int


@dataclass(slots=True)
class Exchange:
    """HTTP answers of one handler and method, as the server's instrumentation counts them."""

    created: float
    statuses: dict[str, int] = field(default_factory=dict)
    request_bytes: float = 0.0
    response_bytes: float = 0.0
    duration: Histogram = field(default_factory=lambda: Histogram((0.1, 0.5, 1.0)))


@dataclass(slots=True)
class Http:
    """HTTP answers of the whole server, by (handler, method)."""

    exchanges: dict[tuple[str, str], Exchange] = field(default_factory=dict)
    duration: Histogram = field(default_factory=lambda: Histogram(_HTTP_EDGES))


@dataclass(frozen=True, slots=True)
class Summary:
    """Count and sum without quantiles."""

    count: float
    sum: float


Value = float | Histogram | Summary
Series = tuple[Labels, Value]


def _number(value: float) -> str:
    if value < 1e6:
        return repr(float(value))
    mantissa, exponent = f"{value:.15e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e+{int(exponent):02d}"


def _line(name: str, labels: Labels, value: float) -> str:
    if not labels:
        return f"{name} {_number(value)}"
    written = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    return f"{name}{{{written}}} {_number(value)}"


def _samples(name: str, labels: Labels, value: Value) -> Iterator[str]:
    if isinstance(value, Histogram):
        total = 0
        for edge, count in zip((*map(str, value.edges), "+Inf"), value.counts, strict=True):
            total += count
            yield _line(f"{name}_bucket", {**labels, "le": edge}, total)
    if isinstance(value, (Histogram, Summary)):
        yield _line(f"{name}_count", labels, value.count)
        yield _line(f"{name}_sum", labels, value.sum)
    else:
        yield _line(name, labels, value)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family. `created`, where not None, adds the gauge of creation times that the Python client writes."""

    name: str
    kind: str
    series: Sequence[Series]
    created: float | None = None

    def lines(self) -> Iterator[str]:
        """Lines of the exposition format, 0.0.4."""
        name = f"{self.name}_total" if self.kind == "counter" else self.name
        yield f"# HELP {name} {self.name} of the simulated server."
        yield f"# TYPE {name} {self.kind}"
        for labels, value in self.series:
            yield from _samples(name, labels, value)
        if self.created is not None and self.series:
            yield f"# HELP {self.name}_created {self.name} of the simulated server."
            yield f"# TYPE {self.name}_created gauge"
            for labels, _ in self.series:
                yield _line(f"{self.name}_created", labels, self.created)


def render(identity: Identity, counters: Counters, http: Http, process: Process) -> str:
    """The whole page, in vLLM's order."""
    families: list[Family] = [*_process(process), *_speculation(identity, counters)]
    families += [
        *_engine(identity, counters),
        *_histograms(identity, counters),
        _cache(identity),
        *_http(identity, http),
    ]
    return "\n".join(line for family in families for line in family.lines()) + "\n"


def _process(process: Process) -> Iterator[Family]:
    for index, name in ((1, "objects_collected"), (2, "objects_uncollectable"), (0, "collections")):
        series = [({"generation": str(number)}, float(facts[index])) for number, facts in enumerate(process.gc)]
        yield Family(f"python_gc_{name}", "counter", series)
    major, minor, patch = process.python
    version = {"implementation": "CPython", "major": str(major), "minor": str(minor), "patchlevel": str(patch)}
    yield Family("python_info", "gauge", [({**version, "version": f"{major}.{minor}.{patch}"}, 1.0)])
    yield Family("process_virtual_memory_bytes", "gauge", [({}, process.virtual_bytes)])
    yield Family("process_resident_memory_bytes", "gauge", [({}, process.resident_bytes)])
    yield Family("process_start_time_seconds", "gauge", [({}, process.started)])
    yield Family("process_cpu_seconds", "counter", [({}, process.cpu_seconds)])
    yield Family("process_open_fds", "gauge", [({}, float(process.open_fds))])
    yield Family("process_max_fds", "gauge", [({}, float(process.max_fds))])


def _counter(identity: Identity, name: str, value: float) -> Family:
    return Family(f"vllm:{name}", "counter", [(identity.labels, value)], identity.created)


def _by(
    identity: Identity, name: str, label: str, values: Iterable[tuple[str, float]], kind: str = "counter"
) -> Family:
    """A family with one more label, one series for each of its values."""
    series = [({**identity.labels, label: key}, value) for key, value in values]
    return Family(f"vllm:{name}", kind, series, identity.created if kind == "counter" else None)


def _speculation(identity: Identity, counters: Counters) -> Iterator[Family]:
    if identity.method is None:  # vLLM has no such family then, rather than a zero
        return
    yield _counter(identity, "spec_decode_num_drafts", counters.drafts)
    yield _counter(identity, "spec_decode_num_draft_tokens", counters.draft_tokens)
    yield _counter(identity, "spec_decode_num_accepted_tokens", counters.accepted_tokens)
    positions = [(str(position), float(count)) for position, count in enumerate(counters.accepted_per_position)]
    yield _by(identity, "spec_decode_num_accepted_tokens_per_pos", "position", positions)


def _engine(identity: Identity, counters: Counters) -> Iterator[Family]:
    gauges, prompt = counters.gauges, float(counters.prompt_tokens)
    for name in ("flops", "read_bytes", "write_bytes"):
        yield _counter(identity, f"estimated_{name}_per_gpu", 0.0)
    for name, value in (("running", gauges.running), ("waiting", gauges.waiting)):
        yield Family(f"vllm:num_requests_{name}", "gauge", [(identity.labels, float(value))])
    reasons = [("capacity", float(gauges.waiting)), ("deferred", 0.0)]
    yield _by(identity, "num_requests_waiting_by_reason", "reason", reasons, "gauge")
    states = [("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)]
    yield _by(identity, "engine_sleep_state", "sleep_state", states, "gauge")
    yield Family("vllm:kv_cache_usage_perc", "gauge", [(identity.labels, gauges.kv_usage)])
    yield _counter(identity, "prefix_cache_queries", prompt)
    for name in ("prefix_cache_hits", "external_prefix_cache_queries", "external_prefix_cache_hits"):
        yield _counter(identity, name, 0.0)
    for name in ("mm_cache_queries", "mm_cache_hits", "num_preemptions"):
        yield _counter(identity, name, 0.0)
    yield _counter(identity, "prompt_tokens", prompt)
    sources = [("local_compute", prompt), ("local_cache_hit", 0.0), ("external_kv_transfer", 0.0)]
    yield _by(identity, "prompt_tokens_by_source", "source", sources)
    yield _counter(identity, "prompt_tokens_cached", 0.0)
    tiers = [(tier, 0.0) for tier in ("device", "host", "p2p", "disk", "external_unspecified")]
    yield _by(identity, "prompt_tokens_cached_by_source", "source", tiers)
    yield _counter(identity, "generation_tokens", counters.generation_tokens)
    yield _by(identity, "request_success", "finished_reason", [(r, float(n)) for r, n in counters.finished.items()])
    limits = [
        ({"model_name": identity.model_name, "reason": f"max_num_queued_{what}"}, 0.0) for what in ("reqs", "tokens")
    ]
    yield Family("vllm:admission_rejections", "counter", limits, identity.created)


def _histograms(identity: Identity, counters: Counters) -> Iterator[Family]:
    for name, histogram in counters.histograms.items():
        yield Family(f"vllm:{name}", "histogram", [(identity.labels, histogram)], identity.created)


# What cache_config_info says besides sizes; a label for every field of vLLM's cache config.
_CACHE_CONFIG = {
    **dict.fromkeys(("_block_size_resolved", "enable_prefix_caching", "swa_bounded_replay"), "True"),
    **dict.fromkeys(("enable_mamba_shared_prefix_checkpoint", "is_attention_free", "kv_sharing_fast_prefill"), "False"),
    **dict.fromkeys(("use_kda_recoverssm", "use_replayssm", "user_specified_block_size"), "False"),
    **dict.fromkeys(("cache_hit_alignment_tokens", "hash_block_size", "kv_cache_layout", "kv_offloading_size"), "None"),
    **dict.fromkeys(
        ("mamba_block_size", "mamba_page_size_padded", "num_cpu_blocks", "num_gpu_blocks_override"), "None"
    ),
    **dict.fromkeys(("prefix_match_unit", "skip_page_size_padded", "sliding_window"), "None"),
    **dict.fromkeys(("cache_dtype", "mamba_cache_dtype"), "auto"),
    "gpu_memory_utilization": "0.92",
    "kv_cache_dtype_skip_layers": "[]",
    "kv_offloading_backend": "native",
    "mamba_cache_mode": "none",
    "mamba_ssm_cache_dtype": "float32",
    "prefix_cache_retention_interval": "0",
    "prefix_caching_hash_algo": "sha256",
    "replayssm_buffer_len": "16",
}
_CONTEXT = 8192  # tokens of one full request, for kv_cache_max_concurrency
_TOKEN_BYTES = 327_680  # KV cache of one token of a 70 B model: 80 layers, 8 heads of 128, keys and values, 16 bit


def _cache(identity: Identity) -> Family:
    blocks = truth.kv_blocks(identity.method, identity.kv)
    tokens = blocks * truth.BLOCK_SIZE
    sizes = {
        "block_size": truth.BLOCK_SIZE,
        "effective_attention_block_size": truth.BLOCK_SIZE,
        "kv_cache_max_concurrency": tokens / _CONTEXT,
        "kv_cache_memory_bytes": truth.KV_BLOCKS * truth.BLOCK_SIZE * _TOKEN_BYTES,
        "kv_cache_size_tokens": tokens,
        "num_gpu_blocks": blocks,
    }
    labels = {**_CACHE_CONFIG, **{name: str(size) for name, size in sizes.items()}, "engine": "0"}
    return Family("vllm:cache_config_info", "gauge", [(labels, 1.0)])


def _http(identity: Identity, http: Http) -> Iterator[Family]:
    """The families of the HTTP instrumentation; those by handler have no series before the first answer."""
    exchanges = http.exchanges.items()
    made = min((exchange.created for _, exchange in exchanges), default=identity.created)
    statuses: list[Series] = [
        ({"handler": handler, "method": method, "status": status}, float(count))
        for (handler, method), exchange in exchanges
        for status, count in exchange.statuses.items()
    ]
    yield Family("http_requests", "counter", statuses, made)
    for name in ("request", "response"):
        yield Family(f"http_{name}_size_bytes", "summary", _sizes(http, name), made)
    yield Family("http_request_duration_highr_seconds", "histogram", [({}, http.duration)], identity.created)
    durations: list[Series] = [({"handler": h, "method": m}, exchange.duration) for (h, m), exchange in exchanges]
    yield Family("http_request_duration_seconds", "histogram", durations, made)


def _sizes(http: Http, name: str) -> list[Series]:
    totals: dict[str, tuple[int, float]] = {}
    for (handler, _), exchange in http.exchanges.items():
        count, size = totals.get(handler, (0, 0.0))
        size += exchange.request_bytes if name == "request" else exchange.response_bytes
        totals[handler] = (count + exchange.duration.count, size)
    return [({"handler": handler}, Summary(count, size)) for handler, (count, size) in totals.items()]
