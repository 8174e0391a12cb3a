"""The judge on a real vLLM: prompts that its drafter guesses badly are a regression, the same prompts never are one.

Two servers with one drafter, one for each arm; what their pages tell goes through the shipped parser and collector.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from harness import vllm_host
from harness.loadgen import LoadGenerator
from specfleet.judgement.judge import Policy, judge
from specfleet.judgement.verdict import Metric, Outcome, Verdict
from specfleet.telemetry.collector import Collector
from specfleet.telemetry.counters import Observation
from specfleet.telemetry.evidence import EMPTY, Arm, Evidence
from specfleet.telemetry.page import Sample, parse

pytestmark = pytest.mark.vllm
CONFIG = {"method": "draft_model", "model": str(vllm_host.MODELS / "tiny-draft"), "num_speculative_tokens": 2}
BLOCK_SECONDS, TICK_SECONDS, BLOCKS = 2.0, 1.0, 12
WARM_SECONDS = 5.0
RATE = 6.0  # requests a second and server: about half of what two of them can answer on two cores
TOKENS = 24
RUNS = 20
# Two servers share two cores with everything else that runs there: a speed that differs by a third says nothing.
POLICY = Policy(speed_percent=50, acceptance_points=3, error_points=5, max_blocks=BLOCKS)
SAME = {"code": 0.5, "writing": 0.5}
Mix = dict[str, float]


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[Arm, str]]:
    """A server for each arm, of the same target and drafter."""
    argument = ("--speculative-config", json.dumps(CONFIG))
    with vllm_host.serve(*argument) as stable, vllm_host.serve(*argument) as canary:
        yield {Arm.STABLE: stable, Arm.CANARY: canary}


async def rollout(servers: dict[Arm, str], mixes: dict[Arm, Mix], seed: int) -> list[Verdict]:
    """A verdict after each block, of servers that are asked those mixes of prompts at the same pace."""
    loads = {
        arm: LoadGenerator(url, RATE, mixes[arm], max_tokens=TOKENS, model="tiny", seed=2 * seed + (arm is Arm.CANARY))
        for arm, url in servers.items()
    }
    for load in loads.values():
        await load.start()
    try:
        await asyncio.sleep(WARM_SECONDS)
        return [judge(evidence, True, POLICY) async for evidence in gathered(servers)]
    finally:
        for load in loads.values():
            await load.stop()


async def gathered(servers: dict[Arm, str]) -> AsyncIterator[Evidence]:
    """The evidence after each block."""
    evidence, collector = EMPTY, Collector(BLOCK_SECONDS, 0.0)
    async with aiohttp.ClientSession() as session:
        while evidence.seen < BLOCKS:
            begun = time.monotonic()
            seen = {arm: {arm.value: Observation((url, 0), await page(session, url))} for arm, url in servers.items()}
            if block := collector.tick(time.monotonic(), seen):
                evidence = evidence.add(block)
                yield evidence
            await asyncio.sleep(max(0.0, TICK_SECONDS - (time.monotonic() - begun)))


async def page(session: aiohttp.ClientSession, url: str) -> Sample:
    """What a server counts now."""
    async with session.get(f"{url}/metrics") as answer:
        return parse(await answer.read())


def called(verdicts: list[Verdict], metric: Metric) -> list[Outcome]:
    """What was said of a metric, block by block."""
    return [each.outcome for verdict in verdicts for each in verdict.metrics if each.metric is metric]


def last_estimate(verdicts: list[Verdict], metric: Metric) -> float:
    """The last estimate of a metric, which there must be."""
    (estimate,) = (each.estimate for each in verdicts[-1].metrics if each.metric is metric)
    assert estimate is not None
    return estimate


async def test_a_canary_that_meets_prompts_its_drafter_guesses_badly_is_a_regression(servers: dict[Arm, str]) -> None:
    """Which of the two kinds is guessed badly is up to the drafter: turned around, the canary is the better one."""
    code, prose = {"code": 1.0}, {"writing": 1.0}
    there = await rollout(servers, {Arm.STABLE: code, Arm.CANARY: prose}, 100)
    back = await rollout(servers, {Arm.STABLE: prose, Arm.CANARY: code}, 101)
    worse, better = sorted((there, back), key=lambda each: last_estimate(each, Metric.ACCEPTANCE))
    assert last_estimate(worse, Metric.ACCEPTANCE) < 0 < last_estimate(better, Metric.ACCEPTANCE)
    assert Outcome.REGRESSION in called(worse, Metric.ACCEPTANCE)
    assert Outcome.REGRESSION not in called(better, Metric.ACCEPTANCE)


@pytest.mark.parametrize("seed", range(RUNS))
async def test_the_same_prompts_are_never_a_regression(servers: dict[Arm, str], seed: int) -> None:
    verdicts = await rollout(servers, {Arm.STABLE: SAME, Arm.CANARY: SAME}, seed)
    assert called(verdicts, Metric.ACCEPTANCE)[-1] in (Outcome.NON_INFERIOR, Outcome.INCONCLUSIVE)
    assert [each.message for verdict in verdicts if (each := verdict.regression)] == []
