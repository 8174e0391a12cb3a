"""Any value of JSON in any place of a document: what another version, a hand or a broken disk may leave."""

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

Place = tuple[Any, ...]
GONE = object()  # not a value: the key or item is taken out
ANYTHING = st.sampled_from(
    [
        *(GONE, None, True, False, 0, -1, 1.5, 1e308, -1e308, 10**400, float("nan"), float("inf")),
        *("", " ", "x", "5", "²", "\udc80", "9" * 5000, [], {}, [1], [[]], ["x"], {"a": 1}, [{}], {"name": []}),
    ]
)


def places(value: Any, way: Place = ()) -> Iterator[Place]:
    """The way to every value in a document, that to the document itself first."""
    yield way
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*way, key))


def corrupted(value: Any, way: Place, junk: Any) -> Any:
    """The document with `junk` in that place."""
    if not way:
        return None if junk is GONE else junk
    step, *rest = way
    copy = dict(value) if isinstance(value, dict) else list(value)
    if not rest and junk is GONE:
        del copy[step]
    else:
        copy[step] = corrupted(value[step], tuple(rest), junk)
    return copy


def corruptions(value: Any) -> st.SearchStrategy[Any]:
    """The document with one or two of its places corrupted."""

    def again(document: Any) -> st.SearchStrategy[Any]:
        return st.builds(corrupted, st.just(document), st.sampled_from(list(places(document))), ANYTHING)

    return again(value) | again(value).flatmap(again)
