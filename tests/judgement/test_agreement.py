"""Greedy answers of two arms: batch noise is no fault, garbage is, and what is unknown is neither."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.judgement.agreement import Answers, agreement, shared
from specfleet.judgement.questions import MAX_TOKENS, PROMPTS

WORDS = ["the", "of", "prime", "number", "tea", "Paris", "select", "fox", "water", "one", "def", "return"]


def said(*texts, chat=True):
    return Answers(chat, texts)


def greedy(random, parts, model=1):
    """Answers of one model under batch noise: each token may be a near-tie, after which all is different."""
    texts = []
    for prompt in range(len(PROMPTS)):
        truth, other = Random(f"{model} {prompt}"), Random(random.random())
        words = [truth.choice(WORDS) for _ in range(MAX_TOKENS)]
        at = next((i for i in range(MAX_TOKENS) if random.random() < parts), MAX_TOKENS)
        texts.append(" ".join([*words[:at], *(other.choice(WORDS) for _ in words[at:])]))
    return Answers(True, tuple(texts))


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        ("", "", 1.0),
        ("abcd", "abcd", 1.0),
        ("abcd", "abxy", 0.5),
        ("ab", "abcd", 0.5),
        ("", "abc", 0.0),
        ("x", "y", 0.0),
    ],
)
def test_two_answers_share_their_beginning(one, other, share):
    assert shared(one, other) == share


@settings(derandomize=True, deadline=None)
@given(st.text(max_size=20), st.text(max_size=20))
def test_what_two_answers_share_is_symmetric_and_a_share(one, other):
    assert shared(one, other) == shared(other, one)
    assert 0 <= shared(one, other) <= 1
    assert (shared(one, other) == 1) == (one == other)


def test_a_canary_that_says_the_same_agrees_whatever_the_length():
    found = agreement({"c": said("Paris", "a b c")}, [[said("Paris", "a b c")], [said("Paris", "a b c")]])
    assert (found.canary, found.stable, found.broken) == (1.0, 1.0, False)


def test_the_worst_pod_is_judged_and_the_prompt_that_differs_most_is_named():
    pods = [[said("Paris", "abcd")], [said("Paris", "abcd")]]
    found = agreement({"good": said("Paris", "abcd"), "bad": said("Parts", "xbcd")}, pods)
    assert (found.pod, found.prompt, found.said, found.stable_said) == ("bad", 1, "xbcd", "abcd")
    assert found.canary == pytest.approx((3 / 5 + 0) / 2)


def test_one_stable_pod_is_compared_with_itself_at_another_time():
    alone = [[said("abcd"), said("abxx")]]
    found = agreement({"c": said("abxx")}, alone)
    assert (found.canary, found.stable) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("canary", "stable"),
    [
        ({}, [[said("a")], [said("a")]]),
        ({"c": said("a")}, []),
        ({"c": said("a")}, [[said("a")]]),  # asked once, so its own noise is not known
        ({"c": said("a")}, [[], [said("a")]]),
        ({"c": said("a")}, [[said("a", chat=False)], [said("a", chat=False)]]),  # not the same question
    ],
)
def test_what_is_not_known_of_either_side_is_unknown(canary, stable):
    assert agreement(canary, stable) is None


@pytest.mark.parametrize("parts", [0.001, 0.003, 0.01])
def test_batch_noise_raises_no_alarm(parts):
    random = Random(7)
    for _ in range(300):
        stable = [[greedy(random, parts)] for _ in range(2)]
        assert not agreement({"c": greedy(random, parts)}, stable).broken


def test_noise_that_only_the_canarys_longer_drafts_bring_raises_none_either():
    random = Random(8)
    for _ in range(300):
        assert not agreement({"c": greedy(random, 0.005)}, [[greedy(random, 0)], [greedy(random, 0)]]).broken


def test_an_engine_that_says_something_else_is_found():
    random = Random(9)
    for _ in range(300):
        stable = [[greedy(random, 0.003)] for _ in range(2)]
        assert agreement({"c": greedy(random, 0.003, model=2)}, stable).broken
