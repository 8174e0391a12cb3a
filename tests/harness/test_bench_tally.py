"""Counting a user's requests in an audit log: each once, within the time, Leases and Events apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.tally import counted, read, told, work

USER = "system:serviceaccount:specfleet-system:specfleet"
BEGIN = 1_700_000_000.0  # 2023-11-14T22:13:20Z


def line(verb: str, resource: str = "", user: str = USER, second: int = 20, **given: Any) -> str:
    reference = {"objectRef": {"resource": resource, **given.pop("reference", {})}} if resource else {}
    event = {
        "stage": "ResponseStarted" if verb == "watch" else "ResponseComplete",
        "verb": verb,
        "user": {"username": user},
        "requestURI": "/apis/x?limit=500",
        "requestReceivedTimestamp": f"2023-11-14T22:13:{second:02}.000000Z",
        **reference,
        **given,
    }
    return json.dumps(event) + "\n"


def test_requests_are_told_apart_by_verb_and_resource() -> None:
    lines = [
        line("patch", "pods"),
        line("patch", "pods", reference={"subresource": "status"}),
        line("get"),
        line("get"),
    ]
    found = counted(lines, USER, BEGIN, BEGIN + 1)
    assert found == {"patch pods": 1, "patch pods/status": 1, "get /apis/x": 2}
    assert told(found) == "2 get /apis/x, 1 patch pods, 1 patch pods/status"


def test_others_and_other_times_do_not_count() -> None:
    begin, end = BEGIN, BEGIN + 5
    lines = [
        line("get", "pods", user="admin", requestURI=f"/?as={USER}"),
        line("get", "pods", second=19),
        line("get", "pods", second=20),
        line("get", "pods", second=24),
        line("get", "pods", second=25),
    ]
    assert counted(lines, USER, begin, end) == {"get pods": 2}


def test_a_watch_counts_when_it_opens_and_not_when_it_ends() -> None:
    lines = [line("watch", "pods"), line("watch", "pods", stage="ResponseComplete")]
    assert counted(lines, USER, BEGIN, BEGIN + 1) == {"watch pods": 1}


def test_a_panicked_request_counts_once() -> None:
    lines = [line("update", "deployments", stage="Panic"), line("update", "deployments")]
    assert counted(lines, USER, BEGIN, BEGIN + 1) == {"update deployments": 1}


def test_leases_and_events_are_left_out_of_the_sum() -> None:
    lines = [line("update", "leases"), line("create", "events"), line("create", "pods"), line("get", "services")]
    assert work(counted(lines, USER, BEGIN, BEGIN + 1)) == 2


def test_a_line_that_is_still_being_written_is_left(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    log.write_text(line("get", "pods") + line("get", "pods")[:40])
    assert read(log, USER, BEGIN, BEGIN + 1) == {"get pods": 1}
