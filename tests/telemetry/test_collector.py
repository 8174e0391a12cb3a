import math
from dataclasses import replace

import pytest

from specfleet.telemetry.collector import Arm, Collector
from specfleet.telemetry.counters import Observation
from specfleet.telemetry.evidence import Block
from specfleet.telemetry.page import Sample


class Pod:
    """A made-up server: every `work` moves its counters by `drafts` drafts of 3 tokens."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.restarts = 0
        self.start = 1.0
        self.running: float | None = 2.0
        self.total = 0.0
        self.accepted = 0.0
        self.share = 1.0  # of the drafts whose first token is accepted
        self.iterations: float | None = 0.0
        self.bounds: tuple[float, ...] = (0.5, 1.0, 2.5)
        self.kv: float | None = 1000.0

    def work(self, drafts: float = 50, steps: float = 10) -> Observation:
        self.total += drafts
        self.accepted += drafts * self.share
        if self.iterations is not None:
            self.iterations += steps
        sample = Sample(
            process_start=self.start,
            drafts=self.total,
            draft_tokens=3 * self.total,
            accepted=self.accepted,
            accepted_per_position=(self.accepted, 0.0, 0.0),
            decode_outputs=self.total,
            iterations=self.iterations,
            running=self.running,
            waiting=1.0,
            first_token_times=self._times(),
            kv_tokens=self.kv,
        )
        return Observation((f"uid-{self.name}", self.restarts), sample)

    def _times(self) -> tuple[tuple[float, float], ...]:
        """A tenth of the first tokens are later than all bounds."""
        within = tuple((bound, 0.9 * self.total) for bound in self.bounds)
        return (*within, (math.inf, self.total)) if within else ()


class Fleet:
    """Ticks a collector every 15 s."""

    def __init__(self, block: float = 60, warmup: float = 0) -> None:
        self.collector = Collector(block, warmup)
        self.now = 1000.0

    def tick(self, stable: list[Pod], canary: list[Pod], seconds: float = 15, **work: float) -> Block | None:
        self.now += seconds
        arms = {Arm.STABLE: stable, Arm.CANARY: canary}
        return self.collector.tick(
            self.now, {arm: {p.name: p.work(**work) for p in pods} for arm, pods in arms.items()}
        )

    def until_block(self, stable: list[Pod], canary: list[Pod], limit: int = 40) -> tuple[Block | None, int]:
        for ticks in range(1, limit + 1):
            block = self.tick(stable, canary)
            if block is not None:
                return block, ticks
        return None, limit


def test_a_block_holds_what_every_pod_did_over_the_same_ticks() -> None:
    fleet, stable, canary = Fleet(), [Pod("s1"), Pod("s2")], [Pod("c1")]
    block, ticks = fleet.until_block(stable, canary)
    assert block is not None
    assert ticks == 5  # the first scrape only says where the counters stand
    assert {pod: tally.drafts for pod, tally in block.stable.items()} == {"s1": 200, "s2": 200}
    assert {pod: tally.seconds for pod, tally in block.canary.items()} == {"c1": 60}


def test_ticks_that_jitter_do_not_lengthen_blocks() -> None:
    fleet, stable, canary = Fleet(), [Pod("s")], [Pod("c")]
    fleet.tick(stable, canary)
    blocks = [fleet.tick(stable, canary, seconds) for seconds in (14.9, 15.0, 14.9, 15.1)]
    assert [block is not None for block in blocks] == [False, False, False, True]


def test_warm_up_counts_in_the_guards_windows_and_not_in_blocks() -> None:
    fleet, stable, canary = Fleet(warmup=60), [Pod("s")], [Pod("c")]
    block, ticks = fleet.until_block(stable, canary)
    assert ticks == 9  # 60 s of warm-up are 4 ticks, then a block
    assert block is not None
    assert block.stable["s"].drafts == 200
    assert fleet.collector.dropped["warm-up"] == 8
    early = Fleet(warmup=600)
    early.tick(stable, canary)
    early.tick(stable, canary)
    assert early.collector.recent(Arm.CANARY).drafts == 50


def test_a_pod_that_joins_later_counts_after_its_own_warm_up() -> None:
    fleet, stable, canary = Fleet(block=15, warmup=30), [Pod("s")], [Pod("c")]
    fleet.until_block(stable, canary)
    joined = [*canary, Pod("c2")]
    pods_per_block = [set(block.canary) for _ in range(4) if (block := fleet.tick(stable, joined))]
    assert pods_per_block == [{"c"}, {"c"}, {"c"}, {"c", "c2"}]


@pytest.mark.parametrize("absent", [Arm.STABLE, Arm.CANARY])
def test_a_tick_without_one_arm_is_in_no_block(absent: Arm) -> None:
    fleet, stable, canary = Fleet(block=15), [Pod("s")], [Pod("c")]
    fleet.until_block(stable, canary)
    present = {Arm.STABLE: stable, Arm.CANARY: canary} | {absent: []}
    assert fleet.tick(present[Arm.STABLE], present[Arm.CANARY]) is None
    assert fleet.tick(stable, canary) is None  # its delta would span the missed tick, the other arm's would not
    block = fleet.tick(stable, canary)
    assert block is not None
    assert (block.stable["s"].drafts, block.canary["c"].drafts) == (50, 50)


def test_a_restart_starts_afresh_and_never_gives_a_negative_or_huge_delta() -> None:
    fleet, stable, canary = Fleet(block=15), [Pod("s")], [Pod("c")]
    fleet.until_block(stable, canary)
    canary[0].restarts, canary[0].total, canary[0].iterations = 1, 0.0, 0.0
    assert fleet.tick(stable, canary) is None
    assert fleet.collector.dropped["restarted"] == 1
    assert fleet.collector.last(Arm.CANARY) is None
    block = fleet.tick(stable, canary)
    assert block is not None
    assert block.canary["c"].drafts == 50


def test_downtime_of_the_operator_counts_nowhere() -> None:
    fleet, stable, canary = Fleet(warmup=15), [Pod("s")], [Pod("c")]
    for _ in range(5):
        fleet.tick(stable, canary)
    assert fleet.tick(stable, canary, seconds=3600, drafts=1e6) is None
    assert fleet.collector.last(Arm.STABLE) is None
    assert fleet.collector.recent(Arm.CANARY).drafts == 0
    block, ticks = fleet.until_block(stable, canary)
    assert block is not None
    assert (block.stable["s"].drafts, ticks) == (200, 5)  # warm-up, and then a whole new block
    assert fleet.collector.dropped["gap"] == 1


def test_a_second_gap_soon_after_the_first_is_a_gap_too() -> None:
    fleet, stable, canary = Fleet(), [Pod("s")], [Pod("c")]
    for seconds in (15, 15, 15, 3600, 3600):
        fleet.tick(stable, canary, seconds)
    assert fleet.collector.dropped["gap"] == 2


def test_a_clock_that_runs_back_is_a_gap() -> None:
    fleet, stable, canary = Fleet(), [Pod("s")], [Pod("c")]
    fleet.tick(stable, canary)
    fleet.tick(stable, canary, seconds=-5)
    assert fleet.collector.dropped["gap"] == 1
    assert fleet.collector.last(Arm.STABLE) is None


def test_a_slower_pace_of_scraping_soon_becomes_usual() -> None:
    fleet, stable = Fleet(), [Pod("s")]
    for seconds in (15, 15, 15, 60, 60, 60, 60):
        fleet.tick(stable, [], seconds)
    assert fleet.collector.last(Arm.STABLE) is not None


def test_looks_that_come_sooner_make_no_gap_of_the_usual_ones() -> None:
    """A canary whose acceptance falls is looked at a second later, and again where it has fallen further."""
    fleet, stable, canary = Fleet(), [Pod("s")], [Pod("c")]
    for seconds in (15, 15, 15, 1, 1, 1, 15):
        fleet.tick(stable, canary, seconds)
    assert fleet.collector.dropped.get("gap", 0) == 0
    assert fleet.collector.recent(Arm.CANARY).drafts == 200


def test_an_open_block_does_not_mix_two_canaries() -> None:
    fleet, stable, old = Fleet(), [Pod("s")], [Pod("old")]
    for _ in range(4):  # 45 of 60 seconds
        fleet.tick(stable, old)
    block, ticks = fleet.until_block(stable, [Pod("new")])
    assert block is not None
    assert set(block.canary) == {"new"}
    assert (ticks, block.stable["s"].drafts) == (5, 200)
    assert fleet.collector.dropped["replaced"] == 1


def test_recent_is_the_last_200_drafts_or_one_scrape_if_that_has_more() -> None:
    fleet, stable = Fleet(), [Pod("s1"), Pod("s2")]
    for _ in range(10):
        fleet.tick(stable, [], drafts=60)
    assert fleet.collector.recent(Arm.STABLE).drafts == 240  # two scrapes of 2 x 60
    fleet.tick(stable, [], drafts=5000)
    assert fleet.collector.recent(Arm.STABLE).drafts == 10_000


def test_recent_knows_nothing_of_pods_that_are_gone() -> None:
    fleet, stable, old = Fleet(), [Pod("s")], [Pod("old")]
    for _ in range(5):
        fleet.tick(stable, old)
    fleet.tick(stable, [Pod("new")])
    assert fleet.collector.recent(Arm.CANARY).drafts == 0
    assert fleet.collector.recent(Arm.STABLE).drafts >= 200


def test_without_a_canary_stable_is_still_measured_and_nothing_is_called_dropped() -> None:
    fleet, stable = Fleet(), [Pod("s1"), Pod("s2")]
    for _ in range(8):
        assert fleet.tick(stable, []) is None
    last = fleet.collector.last(Arm.STABLE)
    assert last is not None
    assert (last.drafts, last.seconds) == (100, 30)
    assert fleet.collector.last(Arm.CANARY) is None
    assert fleet.collector.dropped.get("unpaired", 0) == 0


def test_a_fall_of_acceptance_shows_between_two_scrapes_and_a_low_one_that_stays_does_not() -> None:
    fleet, canary = Fleet(), [Pod("c1"), Pod("c2")]
    for _ in range(3):
        fleet.tick([Pod("s")], canary)
    assert not fleet.collector.fell(Arm.CANARY)
    for pod in canary:
        pod.share = 0.5
    fleet.tick([Pod("s")], canary)
    assert fleet.collector.fell(Arm.CANARY)
    fleet.tick([Pod("s")], canary)
    assert not fleet.collector.fell(Arm.CANARY)


def test_a_handful_of_drafts_falls_by_chance() -> None:
    fleet, pod = Fleet(), Pod("c")
    for share in (0.8, 0.8, 0.2):
        pod.share = share
        fleet.tick([Pod("s")], [pod], drafts=40)
    assert not fleet.collector.fell(Arm.CANARY)


def test_gauges_are_sums_of_the_last_scrape_and_unknown_if_a_pod_does_not_say() -> None:
    fleet, stable = Fleet(), [Pod("s1"), Pod("s2")]
    fleet.tick(stable, [])
    assert fleet.collector.running(Arm.STABLE) == 4
    assert fleet.collector.running(Arm.CANARY) is None
    stable[0].running = None
    fleet.tick(stable, [])
    assert fleet.collector.running(Arm.STABLE) is None


def test_a_stall_is_timed_from_the_scrape_that_saw_it_and_ends_with_a_step() -> None:
    fleet, pods = Fleet(), [Pod("s1"), Pod("s2")]
    fleet.tick(pods, [])
    for expected in (0, 15, 30):
        fleet.tick(pods, [], drafts=0, steps=0)
        assert fleet.collector.stalled_seconds(Arm.STABLE) == expected
    fleet.tick(pods, [])
    assert fleet.collector.stalled_seconds(Arm.STABLE) == 0


def test_an_idle_engine_or_one_that_does_not_say_is_not_stalled() -> None:
    idle, silent = Pod("s1"), Pod("s2")
    idle.running, silent.iterations = 0.0, None
    fleet = Fleet()
    for _ in range(3):
        fleet.tick([idle, silent], [], drafts=0, steps=0)
    assert fleet.collector.stalled_seconds(Arm.STABLE) == 0


def test_a_family_that_vanishes_is_a_restart_and_not_a_zero() -> None:
    fleet, stable = Fleet(), [Pod("s")]
    fleet.tick(stable, [])
    observation = stable[0].work()
    gone = replace(observation, sample=replace(observation.sample, drafts=None))
    fleet.collector.tick(fleet.now + 15, {Arm.STABLE: {"s": gone}})
    assert fleet.collector.dropped["restarted"] == 1


def test_first_tokens_are_timed_only_where_there_is_a_limit() -> None:
    fleet, stable, canary = Fleet(block=15), [Pod("s")], [Pod("c")]
    block, _ = fleet.until_block(stable, canary)
    assert block is not None
    assert (block.bound, block.stable["s"].timed) == (None, 0)
    fleet.collector.ttft_limit = 2.0
    block = fleet.tick(stable, canary)
    assert block is not None
    assert (block.bound, block.stable["s"].timed, block.canary["c"].late) == (1.0, 50, pytest.approx(5))


def test_both_arms_are_read_at_the_same_bound_also_where_one_has_other_buckets() -> None:
    fleet, stable, canary = Fleet(block=15), [Pod("s")], [Pod("c")]
    fleet.collector.ttft_limit = 2.0
    canary[0].bounds = (0.25, 0.5)
    block, _ = fleet.until_block(stable, canary)
    assert block is not None
    assert (block.bound, block.stable["s"].timed, block.canary["c"].timed) == (0.5, 50, 50)


def test_a_pod_without_the_histogram_leaves_the_times_of_both_arms_unknown() -> None:
    fleet, stable, canary = Fleet(block=15), [Pod("s")], [Pod("c1"), Pod("c2")]
    fleet.collector.ttft_limit = 2.0
    canary[1].bounds = ()
    block, _ = fleet.until_block(stable, canary)
    assert block is not None
    assert block.bound is None
    assert {tally.timed for arm in (block.stable, block.canary) for tally in arm.values()} == {0}


def test_an_open_block_does_not_mix_two_limits() -> None:
    fleet, stable, canary = Fleet(), [Pod("s")], [Pod("c")]
    fleet.collector.ttft_limit = 2.0
    for _ in range(4):  # 45 of 60 seconds
        fleet.tick(stable, canary)
    fleet.collector.ttft_limit = 0.6
    block, ticks = fleet.until_block(stable, canary)
    assert block is not None
    assert (block.bound, ticks, block.stable["s"].timed) == (0.5, 4, 200)
    assert fleet.collector.dropped["replaced"] == 1


def test_an_arms_kv_cache_is_its_smallest_pods_and_unknown_if_one_does_not_say() -> None:
    fleet, stable = Fleet(), [Pod("s1"), Pod("s2")]
    stable[1].kv = 900.0
    fleet.tick(stable, [])
    assert (fleet.collector.kv_tokens(Arm.STABLE), fleet.collector.kv_tokens(Arm.CANARY)) == (900, None)
    stable[0].kv = None
    fleet.tick(stable, [])
    assert fleet.collector.kv_tokens(Arm.STABLE) is None
