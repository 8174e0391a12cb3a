"""The patterns that users write: RE2's, which cost linear time and bounded memory whatever is written. Pure."""

from functools import lru_cache

import re2

# Bytes that one pattern's program and the automaton made of it may take. RE2's module keeps at most 128 patterns, so
# together they stay below 32 MiB. A search that would outgrow it goes on slower, never wrongly.
MAX_MEMORY = 1 << 18


@lru_cache(maxsize=128)
def fault(pattern: str) -> str:
    """Why RE2 does not take `pattern`, in a few words; empty if it does."""
    try:
        re2.compile(pattern, _options())
    except re2.error as error:
        said = error.args[0] if error.args else ""
        return " ".join((said.decode(errors="replace") if isinstance(said, bytes) else str(said)).split())
    return ""


def found(pattern: str, text: str) -> bool:
    """Whether a valid `pattern` occurs in `text`. It is compiled once and then remembered."""
    written = text.encode(errors="replace")  # half a surrogate pair, which JSON can carry, has no UTF-8
    return re2.compile(pattern, _options()).search(written) is not None


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = MAX_MEMORY
    options.log_errors = False
    return options
