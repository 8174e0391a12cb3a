"""Answers to probe prompts: what counts as broken."""

import pytest

from specfleet.judgement.sanity import insane


@pytest.mark.parametrize("text", ["Paris, of course.", "4", " 4 4 4", "return a + b", "no no no yes"])
def test_an_ordinary_answer_is_sane(text: str) -> None:
    assert insane(text, "length") == ""


@pytest.mark.parametrize("text", ["", "  \n\t"])
def test_nothing_is_not_an_answer(text: str) -> None:
    assert insane(text, "stop") == "an empty answer"


@pytest.mark.parametrize("text", ["the " * 32, "!" * 32, "a a a a a a a a a"])
def test_one_thing_over_and_over_is_no_answer(text: str) -> None:
    assert "times" in insane(text, "length")


@pytest.mark.parametrize("reason", [None, "abort", "error", "repetition"])
def test_an_answer_that_did_not_end_by_itself_is_no_answer(reason: str | None) -> None:
    assert "finish_reason" in insane("Paris", reason)
