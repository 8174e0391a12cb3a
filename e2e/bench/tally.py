"""Counts what one user asked of the API server, from the server's own audit log.

A request is called by its verb and resource, as in `patch deployments/scale`; without a resource, by verb and path.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

LEFT_OUT = ("leases", "events")  # paid by the clock or by the client's filter, not by what is asked of the controller


def counted(lines: Iterable[str], user: str, begin: float, end: float) -> Counter[str]:
    """Requests of `user` received in [begin, end) (Unix epoch); a watch counts once, when it opens."""
    found: Counter[str] = Counter()
    for line in lines:
        if user not in line:
            continue  # most lines are of others, and need not be parsed
        event = json.loads(line)
        if event["user"]["username"] == user and begin <= received(event) < end and _stands(event):
            found[asked(event)] += 1
    return found


def read(log: Path, user: str, begin: float, end: float) -> Counter[str]:
    """`counted` of a whole audit log."""
    with log.open() as lines:
        return counted((line for line in lines if line.endswith("\n")), user, begin, end)


def work(found: Mapping[str, int]) -> int:
    """How many they are, without those on Leases and Events."""
    return sum(count for key, count in found.items() if key.partition(" ")[2] not in LEFT_OUT)


def told(found: Mapping[str, int]) -> str:
    """All of them in words, the most frequent first."""
    return ", ".join(f"{count} {key}" for key, count in sorted(found.items(), key=lambda item: (-item[1], item[0])))


def received(event: Mapping[str, Any]) -> float:
    """When the API server got the request, Unix epoch."""
    return datetime.fromisoformat(event["requestReceivedTimestamp"].replace("Z", "+00:00")).timestamp()


def asked(event: Mapping[str, Any]) -> str:
    """What the request is called."""
    reference = event.get("objectRef") or {}
    resource = reference.get("resource") or event["requestURI"].partition("?")[0]
    subresource = reference.get("subresource")
    return f"{event['verb']} {resource}/{subresource}" if subresource else f"{event['verb']} {resource}"


def _stands(event: Mapping[str, Any]) -> bool:
    """Whether this is the line that stands for its request: a watch has one at its start and one at its end."""
    return bool(event["stage"] == ("ResponseStarted" if event["verb"] == "watch" else "ResponseComplete"))
