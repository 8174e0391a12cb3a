"""A made-up pair of arms whose truth is known: what the judge's promises are checked against."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from specfleet.telemetry.counters import Tally
from specfleet.telemetry.evidence import EMPTY, Block, Evidence

TOKENS = 2400  # drafted per pod and minute, by 60 requests of 40 tokens
DRAFTS = TOKENS // 3
CLUSTERED = 1 + 39 * 0.15  # variance of a request's tokens that stand and fall together, against independent ones


@dataclass
class Arms:
    """`gap` and `slower` are what the canary really is worse by: points of acceptance, and a share of the speed.

    Both arms see the same drift of the prompts; `pod_effect` is the spread between pods that lasts, in points.
    """

    seed: int
    stable: int = 4
    canary: int = 1
    gap: float = 0.0
    slower: float = 0.0
    pod_effect: float = 0.0
    pod_speed: float = 0.0  # percent
    error_share: float = 0.0  # of the canary's requests
    evidence: Evidence = field(default=EMPTY, init=False)

    def blocks(self, count: int) -> Iterator[Evidence]:
        rng = random.Random(self.seed)
        pods = {f"{arm}-{i}": self._pod(rng, arm) for arm in ("stable", "canary") for i in range(getattr(self, arm))}
        drift = 0.0
        for _ in range(count):
            drift = 0.95 * drift + rng.gauss(0, 0.05)
            tallies = {name: self._tally(rng, drift, *pod) for name, pod in pods.items()}
            by_arm = [{n: t for n, t in tallies.items() if n.startswith(arm)} for arm in ("stable", "canary")]
            self.evidence = self.evidence.add(Block(*by_arm))
            yield self.evidence

    def after(self, count: int) -> Evidence:
        *_, last = self.blocks(count)
        return last

    def _pod(self, rng: random.Random, arm: str) -> tuple[float, float, float]:
        worse = arm == "canary"
        points = rng.gauss(0, self.pod_effect) - (self.gap if worse else 0)
        speed = (1 + rng.gauss(0, self.pod_speed) / 100) * (1 - (self.slower if worse else 0))
        return points / 100, speed, self.error_share if worse else 0.0

    def _tally(self, rng: random.Random, drift: float, points: float, speed: float, errors: float) -> Tally:
        rate = 1 / (1 + math.exp(-(0.62 + drift))) + points
        accepted = round(TOKENS * rate + rng.gauss(0, math.sqrt(TOKENS * rate * (1 - rate) * CLUSTERED)))
        seconds = DRAFTS * (3 * rate + 1) * 0.02 / speed * (1 + 0.3 * drift) * (1 + rng.gauss(0, 0.02))
        return Tally(
            drafts=DRAFTS,
            draft_tokens=TOKENS,
            accepted=accepted,
            decode_outputs=DRAFTS,
            decode_seconds=seconds,
            first_tokens=60,
            iterations=DRAFTS / 8,
            finished=60,
            http_requests=60,
            http_errors=sum(rng.random() < errors for _ in range(60)),
            seconds=60,
            per_position=(accepted // 2, accepted // 3, accepted // 6),
            speculating=True,
        )


@pytest.fixture(scope="session")
def arms() -> type[Arms]:
    return Arms
