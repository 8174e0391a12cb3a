"""The judge on a real vLLM: prompts that its drafter guesses badly are a regression, the same prompts never are one.

Two servers with one drafter, one for each arm; what their pages tell goes through the shipped parser and collector.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from random import Random

import aiohttp
import pytest

from harness import vllm_host
from specfleet.judgement.judge import Policy, judge
from specfleet.judgement.verdict import Metric, Outcome, Verdict
from specfleet.telemetry.collector import Collector
from specfleet.telemetry.counters import Observation
from specfleet.telemetry.evidence import EMPTY, Arm, Evidence
from specfleet.telemetry.page import Sample, parse

pytestmark = pytest.mark.vllm
CONFIG = {"method": "draft_model", "model": str(vllm_host.MODELS / "tiny-draft"), "num_speculative_tokens": 2}
BLOCK_SECONDS, TICK_SECONDS, BLOCKS = 2.0, 1.0, 12
WARM_SECONDS = 3.0
AT_A_TIME = 2  # requests of each server: clients that wait for their answers give both arms the same batches
TOKENS = 24
RUNS = 20
# Two servers share two cores with everything else that runs there, which may take most of one's time: its speed really
# is another then, and nothing is asserted of it.
POLICY = Policy(speed_percent=50, acceptance_points=3, error_points=5, max_blocks=BLOCKS)
NOUNS = ("scheduler", "server", "request", "error", "file", "cache", "user", "message", "table", "module", "process")
PROSE = (
    "The {} decides which", "In the event of an error in the {},", "Each {} is", "When a {} stops,",
    "A list of all the values that the {}", "If the {} does not exist,",
)  # fmt: skip
CODE = (
    "def {}(self, name):\n    ", "class {}(object):\n    def __init__(self", "import {}\n", "for item in {}:\n    ",
    "if {} is None:\n    raise ", "with open({}) as file:\n    ",
)  # fmt: skip
Prompts = Sequence[str]


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[Arm, str]]:
    """A server for each arm, of the same target and drafter."""
    argument = ("--speculative-config", json.dumps(CONFIG))
    with vllm_host.serve(*argument) as stable, vllm_host.serve(*argument) as canary:
        yield {Arm.STABLE: stable, Arm.CANARY: canary}


async def rollout(servers: Mapping[Arm, str], prompts: Mapping[Arm, Prompts], seed: int) -> list[Verdict]:
    """A verdict after each block, of servers that are asked such prompts."""
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as clients:
        asking = [
            clients.create_task(ask(session, url, prompts[arm], Random(f"{seed} {arm} {client}")))
            for arm, url in servers.items()
            for client in range(AT_A_TIME)
        ]
        await asyncio.sleep(WARM_SECONDS)
        verdicts = [judge(evidence, True, POLICY) async for evidence in gathered(session, servers)]
        for task in asking:
            task.cancel()
    return verdicts


async def ask(session: aiohttp.ClientSession, url: str, prompts: Prompts, random: Random) -> None:
    """One prompt after the other, greedily, until cancelled."""
    while True:
        prompt = random.choice(prompts).format(random.choice(NOUNS))
        body = {"model": "tiny", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
        async with session.post(f"{url}/v1/completions", json=body) as answer:
            answer.raise_for_status()
            await answer.read()


async def gathered(session: aiohttp.ClientSession, servers: Mapping[Arm, str]) -> AsyncIterator[Evidence]:
    """The evidence after each block."""
    evidence, collector = EMPTY, Collector(BLOCK_SECONDS, 0.0)
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
    return [verdict.of(metric).outcome for verdict in verdicts]


def estimate(verdicts: list[Verdict], metric: Metric) -> float:
    """The last estimate of a metric, which there must be."""
    found = verdicts[-1].of(metric)
    assert found.estimate is not None, found.message
    return found.estimate


async def test_code_is_a_regression_for_a_drafter_that_guesses_prose(servers: dict[Arm, str]) -> None:
    """This drafter has half of its tokens accepted on prose and a fifth on code."""
    verdicts = await rollout(servers, {Arm.STABLE: PROSE, Arm.CANARY: CODE}, 100)
    assert Outcome.REGRESSION in called(verdicts, Metric.ACCEPTANCE)
    assert estimate(verdicts, Metric.ACCEPTANCE) < -10


async def test_prose_is_none_for_a_drafter_that_was_asked_code_before(servers: dict[Arm, str]) -> None:
    verdicts = await rollout(servers, {Arm.STABLE: CODE, Arm.CANARY: PROSE}, 101)
    assert Outcome.REGRESSION not in called(verdicts, Metric.ACCEPTANCE)
    assert estimate(verdicts, Metric.ACCEPTANCE) > 10


@pytest.mark.parametrize("seed", range(RUNS))
async def test_the_same_prompts_are_never_a_regression(servers: dict[Arm, str], seed: int) -> None:
    mix = (*PROSE, *CODE)
    verdicts = await rollout(servers, {Arm.STABLE: mix, Arm.CANARY: mix}, seed)
    estimate(verdicts, Metric.ACCEPTANCE)  # there is one: something was compared
    for metric in (Metric.ACCEPTANCE, Metric.ERRORS):
        assert Outcome.REGRESSION not in called(verdicts, metric)
