"""Watching: a block per change where nobody can redraw, in place on a terminal."""

import io

import pytest
from rich.console import Console

from specfleet.cli.kubectl import KubectlError, Missing
from specfleet.cli.watch import SECONDS, Look, watch
from specfleet.cli.words import age, elide


def watched(answers, terminal=False):
    """What is written while `answers` come one after the other (errors are raised), and the sleeps between them."""
    out, sleeps, coming = io.StringIO(), [], iter(answers)

    def look():
        answer = next(coming)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def sleep(seconds):
        sleeps.append(seconds)
        if len(sleeps) == len(answers):
            raise KeyboardInterrupt

    watch(look, Console(file=out, force_terminal=terminal, width=80), sleep)
    return out.getvalue(), sleeps


def test_a_log_gets_a_block_only_when_something_changed():
    written, sleeps = watched([Look("one", 1), Look("one, 2 s later", 1), Look("two", 2)])
    assert written == "one\n\ntwo\n"
    assert sleeps == [SECONDS] * 3


def test_a_failed_look_is_said_once_and_tried_again():
    written, _ = watched([Look("one", 1), KubectlError("refused"), KubectlError("refused"), Look("one", 1)])
    assert written == "one\ntrying again: refused\n\none\n"


def test_a_terminal_is_redrawn_each_time_and_keeps_the_last_look_on_failure():
    written, _ = watched([Look("one", 1), Look("one more", 1), KubectlError("refused")], terminal=True)
    assert "one more" in written
    assert "trying again: refused" in written
    assert "\x1b[" in written


@pytest.mark.parametrize("answers", [[KubectlError("no CRD")], [Look("one", 1), Missing("gone")]])
def test_what_cannot_get_better_ends_the_watch(answers):
    with pytest.raises(KubectlError):
        watched([*answers, Look("never", 3)])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (119, "119s"),
        (130, "2m10s"),
        (120, "2m"),
        (11 * 60, "11m"),
        (3 * 3600 + 60, "3h1m"),
        (9 * 3600, "9h"),
        (50 * 3600, "2d2h"),
        (400 * 86400, "400d"),
    ],
)
def test_ages_read_as_kubectls(seconds, text):
    assert age(seconds) == text


@pytest.mark.parametrize(("width", "text"), [(20, "node-mi300x-17"), (8, "nod…x-17"), (1, "…")])
def test_long_names_lose_their_middle(width, text):
    assert elide("node-mi300x-17", width) == text
