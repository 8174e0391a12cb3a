"""What a verdict was made of beside the blocks: whom it compares, by which policy, what was left out. Pure.

It lies next to the evidence, so that a decision can be shown again when its spec and its revisions are gone.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from specfleet.judgement.judge import Policy
from specfleet.judgement.sequence import MOST_ALPHA
from specfleet.rollout.stored import count, parsed, read

LEFT_OUT = {  # why something is in no block, in the order in which it is told; what is counted, and in words why
    "warm-up": ("scrape", "of pods that warmed up"),
    "missed": ("scrape", "after one that failed"),
    "restarted": ("scrape", "after counters began anew"),
    "unpaired": ("tick", "without both arms"),
    "gap": ("tick", "after a pause"),
    "early": ("block", "in which the canary did not carry throughout"),
    "probes": ("block", "in which probes were over 1 %"),
    "replaced": ("block", "whose pods were replaced"),
    "away": ("block", "that an operator's restart cut off"),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """`comparable` says whether acceptance was; `dropped` is by the reasons of LEFT_OUT."""

    uids: tuple[str, str]
    stable: str
    canary: str
    comparable: bool
    policy: Policy
    block_seconds: int
    dropped: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> str:
        """Compact JSON; equal values give equal text. About 400 bytes."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> "Comparison | None":
        """The inverse of `to_json`; None for anything else. Margins that this version does not know are passed over."""
        try:
            raw = parsed(text)
            stable, canary = (str(uid) for uid in raw["uids"])
            return Comparison(
                uids=(stable, canary),
                stable=str(raw["stable"]),
                canary=str(raw["canary"]),
                comparable=bool(raw["comparable"]),
                policy=_policy(raw["policy"]),
                block_seconds=max(1, count(raw["block_seconds"])),
                dropped={str(why): count(times) for why, times in raw["dropped"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


def left_out(dropped: Mapping[str, int]) -> str:
    """What is in no block and why, in words: `12 scrapes of pods that warmed up, 1 tick after a pause`; empty where
    nothing was left out."""
    told = [(dropped[why], what, words) for why, (what, words) in LEFT_OUT.items() if dropped.get(why)]
    return ", ".join(f"{times} {what}{'' if times == 1 else 's'} {words}" for times, what, words in told)


def _policy(raw: Any) -> Policy:
    """One by which the judge can judge; ValueError or TypeError otherwise."""
    policy = read(Policy, raw)
    if not (0.0 < policy.alpha < MOST_ALPHA and policy.min_blocks > 1 and policy.max_blocks):
        raise ValueError("not a policy")
    return policy
