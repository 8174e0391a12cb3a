"""How the fleet speculates: method, drafter, proposal length, and who may change it. Pure."""

from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, Field

from specfleet.api.base import FreeMap, Int, Part, atomic_list, rule, rules
from specfleet.api.model import Source

Method = Literal[
    "mtp",
    "eagle",
    "eagle3",
    "dflash",
    "dspark",
    "draft_model",
    "ngram",
    "ngram_gpu",
    "suffix",
    "medusa",
    "none",
]
METHODS: tuple[str, ...] = get_args(Method)
NEED_DRAFT = frozenset({"eagle", "eagle3", "dflash", "draft_model", "medusa"})
MAY_DRAFT = frozenset({*NEED_DRAFT, "mtp", "dspark"})  # heads in the checkpoint, or a drafter beside it
NEED_TOKENS = frozenset({"ngram", "ngram_gpu", "eagle", "eagle3", "dflash", "draft_model", "medusa"})
MAX_TOKENS = 64

# Keys of vLLM's speculative config that typed fields set.
OPERATOR_KEYS = (
    "method",
    "model",
    "revision",
    "num_speculative_tokens",
    "num_speculative_tokens_per_batch_size",
    "draft_load_config",
    "target_model_config",
    "target_parallel_config",
    "draft_model_config",
    "draft_parallel_config",
)


def _cel(values: "frozenset[str] | tuple[str, ...]") -> str:
    return "[" + ", ".join(f"'{value}'" for value in sorted(values)) + "]"


class Draft(Part):
    """The drafter: the small model or head that proposes tokens."""

    source: Source


class ScheduleStep(Part):
    """A proposal length for a range of batch sizes."""

    min_batch: Annotated[Int, Field(ge=1, le=65536)]
    """Smallest number of running requests that this entry covers. The first entry starts at 1."""
    max_batch: Annotated[Int, Field(ge=1, le=65536)] | None = None
    """Largest number of running requests that this entry covers. Only the last entry may leave it out: no limit."""
    tokens: Annotated[Int, Field(ge=0, le=MAX_TOKENS)]
    """Draft tokens proposed per step in this range, at most numSpeculativeTokens; 0 proposes none."""


class Tuning(Part):
    """Who chooses the proposal length."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.minTokens) || !has(self.maxTokens) || self.minTokens <= self.maxTokens",
                "must not exceed maxTokens; lower minTokens or raise maxTokens",
                "minTokens",
            )
        )
    )

    mode: Literal["Off", "Recommend", "Auto"] = "Off"
    """Off: numSpeculativeTokens is used as written. Recommend: a better length is published in status. Auto: it is
    rolled out, through the same canary as any change. Default: Off."""
    min_tokens: Annotated[Int, Field(ge=1, le=MAX_TOKENS)] = 1
    """Shortest proposal that the tuner may choose, in tokens. Default: 1."""
    max_tokens: Annotated[Int, Field(ge=1, le=MAX_TOKENS)] | None = None
    """Longest proposal that the tuner may choose, in tokens. Default: numSpeculativeTokens."""
    min_gain_percent: Annotated[Int, Field(ge=0, le=100)] = 3
    """Gain in tokens per second, in percent, below which a change is not worth a rollout. Default: 3."""
    interval_seconds: Annotated[Int, Field(ge=600, le=2592000)] = 21600
    """Least time between two changes by the tuner, in seconds. Default: 21600."""
    max_restarts_per_day: Annotated[Int, Field(ge=0, le=24)] = 4
    """Rollouts that the tuner may start within 24 hours. Default: 4."""


class Slo(Part):
    """What users were promised. The judge compares how often a first token is later; the time per output token of
    each revision is shown beside its limit."""

    time_per_output_token_ms: Annotated[Int, Field(ge=1, le=60000)] | None = None
    """Mean time per output token of a request after its first, in milliseconds."""
    time_to_first_token_ms: Annotated[Int, Field(ge=1, le=600000)] | None = None
    """Time to the first token of a request, in milliseconds. A canary must not have more requests beyond it than stable
    has, within rollout.analysis.margins.ttftPoints. It is read as the last bound of vLLM's histogram below it."""

    @property
    def time_to_first_token(self) -> float | None:
        """Seconds to the first token."""
        return None if self.time_to_first_token_ms is None else self.time_to_first_token_ms / 1000


def _speculation_rules() -> tuple[dict[str, str], ...]:
    first = "!has(self.schedule) || self.schedule.size() == 0 || "
    return (
        rule(
            "self.method != 'none' || !(has(self.draft) || has(self.numSpeculativeTokens) || has(self.options)"
            " || (has(self.schedule) && self.schedule.size() > 0))",
            "none takes no draft, numSpeculativeTokens, options or schedule; remove them or choose a method",
            "method",
        ),
        rule(
            f"!(self.method in {_cel(NEED_DRAFT)}) || has(self.draft)",
            "this method needs a drafter; set draft.source",
            "draft",
        ),
        rule(
            f"self.method == 'none' || self.method in {_cel(MAY_DRAFT)} || !has(self.draft)",
            "ngram, ngram_gpu and suffix propose from the text itself; remove draft",
            "draft",
        ),
        rule(
            f"!(self.method in {_cel(NEED_TOKENS)}) || has(self.numSpeculativeTokens)",
            "this method has no length of its own; set numSpeculativeTokens, for example 3",
            "numSpeculativeTokens",
        ),
        rule(
            first + "has(self.numSpeculativeTokens)",
            "needs numSpeculativeTokens as its maximum; set numSpeculativeTokens",
            "schedule",
        ),
        rule(
            first + "self.schedule[0].minBatch == 1", "must start at batch 1; set schedule[0].minBatch to 1", "schedule"
        ),
        rule(
            "!has(self.schedule) || self.schedule.all(e, !has(e.maxBatch) || e.minBatch <= e.maxBatch)",
            "minBatch must not exceed maxBatch in an entry; swap them",
            "schedule",
        ),
        rule(
            "!has(self.schedule) || self.schedule.all(a, self.schedule.exists_one(b, b.minBatch == a.minBatch)"
            " && (has(a.maxBatch) || self.schedule.all(b, b.minBatch <= a.minBatch)))",
            "only the last entry may leave maxBatch out, and no two may start alike; set maxBatch",
            "schedule",
        ),
        rule(
            "!has(self.schedule) || self.schedule.all(a, !has(a.maxBatch) || self.schedule.all(b,"
            " b.minBatch <= a.minBatch || b.minBatch > a.maxBatch))",
            "entries overlap; let each minBatch be greater than the maxBatch before it",
            "schedule",
        ),
        rule(
            "!has(self.schedule) || self.schedule.size() == 0 || self.schedule.map(e, e.minBatch).isSorted()",
            "entries must ascend by minBatch; sort them",
            "schedule",
        ),
        rule(
            "!has(self.schedule) || !has(self.numSpeculativeTokens)"
            " || self.schedule.all(e, e.tokens <= self.numSpeculativeTokens)",
            "tokens must not exceed numSpeculativeTokens; raise numSpeculativeTokens or lower tokens",
            "schedule",
        ),
    )


class Speculation(Part):
    """How tokens are proposed and how many."""

    model_config = ConfigDict(json_schema_extra=rules(*_speculation_rules()))

    method: Method
    """vLLM's name of the method, or none. mtp uses heads in the checkpoint, or a drafter (Gemma 4); dspark likewise;
    eagle, eagle3, dflash, draft_model and medusa need a drafter; ngram, ngram_gpu and suffix need none."""
    draft: Draft | None = None
    num_speculative_tokens: Annotated[Int, Field(ge=1, le=MAX_TOKENS)] | None = None
    """The proposal length: draft tokens proposed per step; with a schedule, its maximum. mtp, dspark and suffix have a
    default of their own (the checkpoint's layers, the trained block, 24)."""
    options: Annotated[FreeMap, Field(max_length=32)] = {}
    """Further keys of vLLM's speculative config, passed on as written, for example attention_backend or
    prompt_lookup_max. Keys that the operator sets from a field are refused."""
    schedule: Annotated[tuple[ScheduleStep, ...], Field(max_length=16, json_schema_extra=atomic_list())] = ()
    """Proposal length by batch size: starts at 1, ascends, does not overlap. vLLM ignores it for some methods."""
    tuning: Tuning = Tuning()

    @property
    def maximum(self) -> int | None:
        """Most draft tokens per step; None where vLLM chooses it; 0 without speculation."""
        return 0 if self.method == "none" else self.num_speculative_tokens
