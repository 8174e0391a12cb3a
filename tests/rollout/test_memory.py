"""What is remembered comes back as it was, and what cannot be read is nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.rollout.memory import KEPT_DECISIONS, Decision, Memory, Rollout

text = st.text(max_size=20)
times = st.floats(0, 1e11)
rollouts = st.builds(
    Rollout, text, st.tuples(text, text), st.integers(0, 16), st.none() | times, st.integers(0, 9), text, st.booleans()
)
memories = st.builds(
    Memory,
    st.none() | rollouts,
    st.lists(st.builds(Decision, times, text, text, text), max_size=3).map(tuple),
    st.dictionaries(text, st.integers() | text | st.lists(text, max_size=2), max_size=3),
)


@given(memories)
def test_a_memory_comes_back_as_it_was(memory):
    assert Memory.from_json(memory.to_json()) == memory


@given(memories)
def test_equal_memories_give_equal_text(memory):
    assert Memory.from_json(memory.to_json()).to_json() == memory.to_json()


@pytest.mark.parametrize(
    "garbage",
    [
        *("", "null", "[]", "{", "0", '"x"', "{}", "[" * 100_000),
        '{"rollout": 1, "decisions": [], "spec": {}}',
        '{"rollout": null, "decisions": [{"when": 1}], "spec": {}}',
        '{"rollout": null, "decisions": [], "spec": 7}',
        '{"rollout": null, "decisions": [], "spec": {}, "base_weight": Infinity}',
        '{"rollout": null, "decisions": [{"time": 1e300, "reason": "", "message": "", "revision": ""}], "spec": {}}',
        '{"rollout": null, "decisions": [{"time": 1, "reason": [], "message": "", "revision": ""}], "spec": {}}',
        '{"rollout": null, "decisions": [{"time": 1, "reason": "", "message": "\\ud800", "revision": ""}], "spec": {}}',
        '{"rollout": {"canary": "x", "uids": ["a", "b"], "step": "1"}, "decisions": [], "spec": {}}',
        '{"rollout": {"canary": "x", "uids": ["a", "b"], "step": -1}, "decisions": [], "spec": {}}',
        '{"rollout": {"canary": "x", "uids": ["a", "b"], "reached": NaN}, "decisions": [], "spec": {}}',
        '{"rollout": {"canary": "x", "uids": ["a", "b"], "pods": [1]}, "decisions": [], "spec": {}}',
        '{"rollout": {"canary": "x", "uids": "ab"}, "decisions": [], "spec": {}}',
        '{"rollout": {"canary": "x", "uids": ["a", "b"], "step": {}}, "decisions": 1, "spec": {}}',
    ],
)
def test_garbage_is_an_empty_memory(garbage):
    assert Memory.from_json(garbage) == Memory()


def test_what_a_newer_operator_remembered_is_passed_over():
    text = '{"rollout": {"canary": "x", "uids": ["a", "b"], "new": 1}, "decisions": [], "spec": {}, "later": []}'
    assert Memory.from_json(text) == Memory(Rollout("x", ("a", "b")))


@given(text)
def test_any_text_is_some_memory(garbage):
    assert isinstance(Memory.from_json(garbage), Memory)


def test_only_the_last_decisions_are_kept():
    memory = Memory()
    for number in range(KEPT_DECISIONS + 3):
        memory = memory.decided(Decision(float(number), "Promoted", "", "qwen"))
    assert [decision.time for decision in memory.decisions] == [float(n) for n in range(3, KEPT_DECISIONS + 3)]
