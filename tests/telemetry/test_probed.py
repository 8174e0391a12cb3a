"""What the operator's probes did is taken out of blocks, or the block is dropped; nothing is made up."""

from dataclasses import replace

import pytest

from specfleet.telemetry.asked import NOTHING, Asked
from specfleet.telemetry.collector import Arm, Collector
from specfleet.telemetry.counters import Observation, Tally
from specfleet.telemetry.page import Sample
from specfleet.telemetry.probed import without_probes

BUSY = Tally(
    drafts=40_000, draft_tokens=120_000, accepted=60_000, generation_tokens=100_000, prompt_tokens=5_000,
    decode_outputs=40_000, first_tokens=500, finished=500, http_requests=500, seconds=60, speculating=True,
)  # fmt: skip
TEN = Asked(requests=10, finished=10, prompt_tokens=150, generation_tokens=300)


def test_a_block_without_probes_stays_as_it_is():
    assert without_probes({"a": BUSY}, {"a": NOTHING}) == {"a": BUSY}


def test_what_is_known_exactly_is_subtracted_and_drafts_are_not_made_up():
    left = without_probes({"a": BUSY, "b": BUSY}, {"a": TEN})
    assert left["b"] == BUSY
    kept = {name: getattr(left["a"], name) for name in ("http_requests", "finished", "first_tokens")}
    assert kept == {"http_requests": 490, "finished": 490, "first_tokens": 490}
    assert (left["a"].prompt_tokens, left["a"].generation_tokens) == (4_850, 99_700)
    assert (left["a"].drafts, left["a"].accepted, left["a"].decode_outputs) == (40_000, 60_000, 40_000)


@pytest.mark.parametrize(("late", "left"), [(3, 3), (100, 90)])
def test_the_first_token_of_a_probe_is_no_users_and_was_in_time(late, left):
    tally = replace(BUSY, timed=100.0, late=float(late))
    found = without_probes({"a": tally}, {"a": TEN})["a"]
    assert (found.timed, found.late) == (90, left)


def test_an_error_that_a_probe_got_is_no_users():
    tally = Tally(http_requests=500, http_errors=2, generation_tokens=100_000)
    left = without_probes({"a": tally}, {"a": Asked(requests=1, errors=1)})
    assert (left["a"].http_requests, left["a"].http_errors) == (499, 1)


@pytest.mark.parametrize(
    ("asked", "dropped"),
    [
        (Asked(requests=13, finished=13, generation_tokens=400), False),
        (Asked(requests=13, finished=13, generation_tokens=401), True),  # more than 1 % of what may be their drafts
        (Asked(requests=12, finished=12, generation_tokens=390, in_flight=32), True),
    ],
)
def test_a_block_of_which_probes_may_have_made_more_than_a_hundredth_is_dropped(asked, dropped):
    assert (without_probes({"a": BUSY}, {"a": asked}) is None) == dropped


def test_without_speculation_generated_tokens_are_what_counts():
    tally = Tally(generation_tokens=100_000, http_requests=500)
    assert without_probes({"a": tally}, {"a": Asked(requests=30, generation_tokens=1000)}) is not None
    assert without_probes({"a": tally}, {"a": Asked(requests=30, generation_tokens=1001)}) is None


def test_the_share_is_the_whole_arms_not_one_pods():
    idle = Tally(http_requests=10, generation_tokens=300, seconds=60)
    left = without_probes({"a": BUSY, "b": idle}, {"b": TEN})
    assert (left["b"].http_requests, left["b"].generation_tokens) == (0, 0)


def test_an_arm_that_only_answered_probes_was_idle():
    probed = Tally(
        drafts=250, draft_tokens=750, accepted=40, generation_tokens=300, http_requests=10, seconds=60,
        decode_outputs=250, decode_seconds=3.0, per_position=(40.0, 0.0, 0.0), speculating=True,
    )  # fmt: skip
    left = without_probes({"a": probed}, {"a": TEN})
    assert left == {"a": Tally(seconds=60, per_position=(0.0, 0.0, 0.0), speculating=True)}


def test_a_probe_that_crosses_the_edge_of_a_block_leaves_an_idle_arm_idle():
    first = without_probes({"a": Tally(generation_tokens=20, seconds=60)}, {"a": Asked(in_flight=32)})
    ended = Asked(requests=1, finished=1, generation_tokens=32)
    second = without_probes({"a": Tally(http_requests=1, generation_tokens=12, seconds=60)}, {"a": ended})
    assert first == second == {"a": Tally(seconds=60)}


class Fleet:
    """One pod of each arm, with totals that a test moves; ticks of 10 s."""

    def __init__(self):
        self.collector, self.now = Collector(20.0, 0.0), 0.0
        self.totals = {arm: {"generation_tokens": 0, "http_requests": 0} for arm in Arm}
        self.asked = dict.fromkeys(Arm, NOTHING)

    def tick(self, tokens=0, requests=0, asked=NOTHING):
        self.now += 10
        for total in self.totals.values():
            total["generation_tokens"] += tokens
            total["http_requests"] += requests
        self.totals[Arm.CANARY]["generation_tokens"] += asked.generation_tokens
        self.totals[Arm.CANARY]["http_requests"] += asked.requests
        self.asked[Arm.CANARY] = self.asked[Arm.CANARY] + asked
        samples = {arm: Sample(**{name: float(n) for name, n in total.items()}) for arm, total in self.totals.items()}
        arms = {arm: {"pod": Observation(("pod", 0), sample, self.asked[arm])} for arm, sample in samples.items()}
        return self.collector.tick(self.now, arms)


def test_the_collector_takes_probes_out_of_a_block():
    fleet = Fleet()
    fleet.tick()
    fleet.tick(100_000, 500)
    block = fleet.tick(100_000, 500, TEN)
    assert (block.canary["pod"].http_requests, block.canary["pod"].generation_tokens) == (1000, 200_000)
    assert fleet.collector.dropped.get("probes", 0) == 0


def test_the_collector_says_that_it_dropped_a_block_for_its_probes():
    fleet = Fleet()
    fleet.tick()
    fleet.tick(10_000, 50)
    assert fleet.tick(10_000, 50, TEN) is None
    assert fleet.collector.dropped["probes"] == 1
    fleet.tick(10_000, 50)
    assert fleet.tick(10_000, 50).canary["pod"].http_requests == 100, "the next block is whole"


def test_what_was_asked_before_a_block_is_not_its():
    fleet = Fleet()
    fleet.tick(0, 0, TEN)
    fleet.tick(1_000, 5)
    assert fleet.tick(1_000, 5).canary["pod"].http_requests == 10


def test_what_was_forgotten_is_not_asked_backwards():
    assert Asked(requests=2).since(Asked(requests=9, prompt_tokens=90)) == Asked()
