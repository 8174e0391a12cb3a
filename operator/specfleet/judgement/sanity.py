"""Whether an answer to a probe prompt is sane: not empty, not one thing over and over, properly ended. Pure."""

FINISHED = ("stop", "length")
REPEATS = 8  # of one word in a row: a greedy model may stutter, a broken one does nothing else


def insane(text: str, finish_reason: str | None) -> str:
    """What is wrong with a completion, in a few words; empty when it is sane."""
    if not text.strip():
        return "an empty answer"
    if finish_reason not in FINISHED:
        return f"finish_reason {finish_reason!r}"
    words = text.split()
    if len(words) >= REPEATS and len(set(words)) == 1:
        return f"one word {len(words)} times: {words[0][:20]!r}"
    packed = "".join(words)
    if len(packed) >= 2 * REPEATS and len(set(packed)) == 1:
        return f"one character {len(packed)} times: {packed[0]!r}"
    return ""
