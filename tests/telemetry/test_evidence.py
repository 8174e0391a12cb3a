import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.telemetry.counters import NUMBERS, Tally
from specfleet.telemetry.evidence import BLOCK_FIELDS, EMPTY, MAX_BLOCKS, Arm, Block, Evidence, from_json

numbers = st.one_of(st.integers(0, 10**9).map(float), st.floats(0, 1e6))
tallies = st.builds(
    lambda values, positions, speculating: Tally(*values, per_position=tuple(positions), speculating=speculating),
    st.lists(numbers, min_size=len(NUMBERS), max_size=len(NUMBERS)),
    st.lists(numbers, max_size=4),
    st.booleans(),
)
arms = st.dictionaries(st.sampled_from(["pod-a", "pod-b", "pod-ü"]), tallies, max_size=3)
blocks = st.builds(Block, arms, arms, st.sampled_from([None, 0.5, 1.0]))


def collected(blocks: list[Block]) -> Evidence:
    evidence = EMPTY
    for block in blocks:
        evidence = evidence.add(block)
    return evidence


def busy(drafts: int) -> Tally:
    """A pod's minute with 32 requests of an 8B model at k = 5."""
    return Tally(
        *(
            drafts,
            5 * drafts,
            2 * drafts,
            3 * drafts,
            9000,
            drafts + 77,
            1919.123,
            95,
            2077,
            95,
            0,
            95,
            1,
            60.013,
            77,
            9,
        ),
        per_position=(0.8 * drafts // 1, 0.5 * drafts // 1, 0.4 * drafts // 1, 0.2 * drafts // 1, 0.1 * drafts // 1),
        speculating=True,
    )


@given(st.lists(blocks, max_size=5))
def test_json_gives_back_an_equal_value(blocks: list[Block]) -> None:
    evidence = collected(blocks)
    assert from_json(evidence.to_json()) == evidence


def test_two_hours_of_a_busy_fleet_fit_into_20_kb() -> None:
    block = Block(
        {f"llama-6b7f9c42-{i:05}": busy(64_123) for i in range(8)}, {f"llama-c-{i}": busy(64_001) for i in (1, 2)}
    )
    text = collected([block] * 120).to_json()
    assert 5_000 < len(text) <= 20_000


def test_what_is_nearly_nothing_is_nothing() -> None:
    """A denominator of 1e-300, which no counter makes, would be one whose square nobody can divide by."""
    text = json.dumps(
        {**json.loads(EMPTY.to_json()), "blocks": [[[1e-300] * len(BLOCK_FIELDS), [1.0] * len(BLOCK_FIELDS)]]}
    )
    (block,) = from_json(text).blocks
    assert set(block.stable.numbers()) == {0.0}


def test_blocks_pool_pods_and_pods_sum_over_blocks() -> None:
    first = Block({"a": busy(100), "b": busy(200)}, {"c": busy(50)})
    second = Block({"a": busy(10)}, {"c": busy(5)})
    evidence = collected([first, second])
    assert [block.stable.drafts for block in evidence.blocks] == [300, 10]
    assert [block.canary.accepted for block in evidence.blocks] == [100, 10]
    assert {pod: tally.drafts for pod, tally in evidence.pods[Arm.STABLE].items()} == {"a": 110, "b": 200}
    assert evidence.pods[Arm.CANARY]["c"].per_position == (44, 27, 22, 11, 5)


def test_a_pods_positions_survive_a_block_in_which_it_has_none() -> None:
    evidence = collected([Block({"a": busy(100)}, {}), Block({"a": Tally.zero()}, {})])
    assert evidence.pods[Arm.STABLE]["a"].per_position == busy(100).per_position


def test_adding_leaves_the_former_value_as_it_was() -> None:
    before = EMPTY.add(Block({"a": busy(1)}, {"c": busy(1)}))
    text = before.to_json()
    before.add(Block({"a": busy(2), "b": busy(1)}, {"c": busy(2)}))
    assert before.to_json() == text
    assert EMPTY.blocks == ()
    assert EMPTY.pods == {Arm.STABLE: {}, Arm.CANARY: {}}


def test_a_rollout_that_waits_for_days_does_not_outgrow_a_config_map() -> None:
    evidence = collected([Block({"a": busy(64_123)}, {"c": busy(64_123)})] * (MAX_BLOCKS + 5))
    assert len(evidence.blocks) == MAX_BLOCKS
    assert len(evidence.to_json()) < 500_000


def test_what_is_forgotten_are_the_oldest_blocks_and_they_still_count() -> None:
    evidence = collected([Block({"a": busy(drafts)}, {"c": busy(1)}) for drafts in range(MAX_BLOCKS + 5)])
    assert [block.stable.drafts for block in evidence.blocks] == list(range(5, MAX_BLOCKS + 5))
    assert (evidence.forgotten, evidence.seen) == (5, MAX_BLOCKS + 5)
    assert evidence.pods[Arm.CANARY]["c"].drafts == MAX_BLOCKS + 5
    assert from_json(evidence.to_json()) == evidence


FORMER = (
    '{"format":1,"forgotten":3,"blocks":[[[1,300,1500,600,300,1919.123,500,95,1,60.013],[0,0,0,0,50,10,9,5,0,60]]],'
    '"pods":{"stable":{"a":[1,300,1500,600,900,9000,300,1919.123,95,500,95,0,95,1,60.013,[240,150]]},"canary":{}}}'
)


def test_evidence_of_the_former_format_is_read_and_no_first_token_in_it_was_timed() -> None:
    evidence = from_json(FORMER)
    (block,) = evidence.blocks
    assert (block.stable.drafts, block.stable.http_errors, block.stable.seconds) == (300, 1, 60.013)
    assert (block.canary.decode_outputs, block.canary.drafts) == (50, 0)
    assert (block.stable.timed, block.stable.per_position, evidence.bound) == (0, (), None)
    pod = evidence.pods[Arm.STABLE]["a"]
    assert (pod.drafts, pod.first_tokens, pod.seconds, pod.timed) == (300, 95, 60.013, 0)
    assert (pod.speculating, pod.per_position, evidence.forgotten) == (True, (240, 150), 3)
    assert from_json(evidence.to_json()) == evidence


def test_evidence_of_the_former_format_goes_on_in_the_new_one() -> None:
    evidence = from_json(FORMER).add(Block({"a": busy(100)}, {"c": busy(50)}, bound=1.0))
    assert [block.stable.timed for block in evidence.blocks] == [0, 77]
    assert evidence.pods[Arm.STABLE]["a"].timed == 77
    assert from_json(evidence.to_json()) == evidence


@pytest.mark.parametrize("text", [FORMER.replace(",60.013],", "],"), FORMER.replace("[[[1,", "[[[1,7,")])
def test_the_former_format_is_read_no_less_strictly(text: str) -> None:
    with pytest.raises(ValueError, match=r"wrong length"):
        from_json(text)


def test_first_tokens_timed_against_another_bound_are_forgotten_and_nothing_else() -> None:
    evidence = collected([Block({"a": busy(100)}, {"c": busy(50)}, bound) for bound in (1.0, None, 1.0)])
    assert (evidence.bound, [block.canary.timed for block in evidence.blocks]) == (1.0, [77, 77, 77])
    other = evidence.add(Block({"a": busy(100)}, {"c": busy(50)}, bound=0.5))
    assert (other.bound, [block.canary.timed for block in other.blocks]) == (0.5, [0, 0, 0, 77])
    assert [block.canary.drafts for block in other.blocks] == [50] * 4
    assert {arm: [(t.timed, t.late) for t in pods.values()] for arm, pods in other.pods.items()} == {
        Arm.STABLE: [(77, 9)],
        Arm.CANARY: [(77, 9)],
    }


def test_a_block_keeps_the_first_position_that_every_draft_has() -> None:
    (block,) = EMPTY.add(Block({"a": busy(100), "b": busy(10)}, {"c": Tally(drafts=0)})).blocks
    assert (block.stable.per_position, block.canary.per_position) == ((88,), ())


def damaged() -> list[str]:
    good = json.loads(EMPTY.add(Block({"a": busy(9)}, {"c": busy(9)})).to_json())

    def with_(path: list[str | int], value: object) -> str:
        document = json.loads(json.dumps(good))
        at = document
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
        return json.dumps(document)

    return [
        "",
        "null",
        "[]",
        "{}",
        "[" * 100_000,
        '{"format":1,"blocks":[],"pods":{"stable":{}}}',
        with_(["format"], 1),
        with_(["format"], 3),
        with_(["bound"], -1),
        with_(["bound"], "1"),
        with_(["more"], 1),
        with_(["blocks"], {}),
        with_(["blocks", 0], []),
        with_(["blocks", 0, 0], "x"),
        with_(["pods", "stable", "a", 0], 2),
        with_(["blocks", 0, 0], [1] * (len(BLOCK_FIELDS) + 2)),
        with_(["blocks", 0, 0, 1], -1),
        with_(["blocks", 0, 0, 1], True),
        with_(["blocks", 0, 0, 1], None),
        with_(["blocks", 0, 0, 1], float("nan")),
        with_(["blocks", 0, 0, 1], float("inf")),
        with_(["blocks", 0, 0, 1], 10**400),
        with_(["blocks", 0, 0], [1, 2]),
        with_(["pods", "stable", "a"], []),
        with_(["pods", "stable", "a"], 7),
        with_(["pods", "stable", "a", -1], 7),
        with_(["pods", "stable", "a", -1], ["x"]),
    ]


@pytest.mark.parametrize("text", damaged(), ids=lambda text: text[:12] or "empty")
def test_anything_else_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_json(text)


@given(st.text())
def test_any_text_is_evidence_or_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_json(text)
