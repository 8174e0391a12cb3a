"""Patterns of users: what RE2 does not take is said in one line, and none can take time or memory without end."""

import time

import pytest

from specfleet.api import patterns


@pytest.mark.parametrize("pattern", ["4", "(?i)paris|lyon", r"^\s*\{", r"\bParis\b", "é+", "x" * 500])
def test_a_pattern_of_re2_is_taken(pattern):
    assert patterns.fault(pattern) == ""


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "missing )"),
        (r"(a)\1", "invalid escape sequence"),
        ("(?=a)", "invalid perl operator"),
        ("a{1001}", "invalid repetition size"),
        (r"(\pL{1,30}){1,30}", "pattern too large"),
        ("a\n(", "missing )"),
    ],
)
def test_what_re2_does_not_take_is_said_on_one_line(pattern, why, capfd):
    fault = patterns.fault(pattern)
    assert fault.startswith(why)
    assert "\n" not in fault
    assert capfd.readouterr() == ("", ""), "RE2 keeps it to itself"


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("4", "2+2=4.", True),
        ("^4", "2+2=4.", False),
        ("é", "café", True),
        ("4", "4 \ud800", True),  # half a surrogate pair
        ("", "", True),
    ],
)
def test_a_pattern_is_searched_anywhere_in_the_text(pattern, text, found):
    assert patterns.found(pattern, text) is found


def test_a_pattern_that_backtracking_never_ends_takes_no_time():
    began = time.perf_counter()
    assert not patterns.found("(a|a)*(a|aa)*b", "a" * 100_000)
    assert time.perf_counter() - began < 5
