"""The one error of the harness, and how it talks to the person at the terminal."""

import sys


class HarnessError(Exception):
    """Something a person has to know or do; its text is one clear message, shown without a traceback."""


def say(message: str) -> None:
    """A line of progress on stderr, so that stdout stays for results."""
    print(message, file=sys.stderr, flush=True)
