"""Why this weight and this proposal length: whole views, and the record behind them."""

import math
from dataclasses import replace

import pytest

from specfleet.api import names
from specfleet.cli.case import Stage, case, demands
from specfleet.cli.explain import explained
from specfleet.cli.record import record
from specfleet.judgement.judge import Policy
from specfleet.resources.evidence import evidence_map
from specfleet.rollout.comparison import Comparison
from specfleet.rollout.memory import Decision, Memory, Rollout
from specfleet.rollout.revision import identity
from specfleet.telemetry.counters import Tally
from specfleet.telemetry.evidence import EMPTY, Block, Evidence

STABLE, CANARY = "llama-6b7f9c42", "llama-9d2zx4kv"
NOW = 1_790_000_000.0
HIDDEN = '{"enable_adaptive_verification": true}'
# A pod's minute: 8 requests at once, 30 tokens a second each.
THREE = Tally(
    drafts=6000, draft_tokens=18_000, accepted=10_800, generation_tokens=16_860, decode_outputs=6000,
    decode_seconds=560, first_tokens=60, iterations=750, finished=60, http_requests=60, seconds=60,
    per_position=(4560, 3540, 2700), speculating=True,
)  # fmt: skip
FIVE = replace(THREE, drafts=5000, draft_tokens=25_000, accepted=11_800, decode_outputs=5000, decode_seconds=510,
    per_position=(3700, 2800, 2200, 1700, 1400))  # fmt: skip


def spec(length: int, **more):
    return {
        "replicas": 8,
        "model": {"source": {"huggingFace": {"repo": "meta-llama/Llama-3.3-70B-Instruct"}}},
        "speculation": {"method": "ngram", "numSpeculativeTokens": length},
        "rollout": {
            "steps": [{"weight": 5}, {"weight": 25, "minSeconds": 120}, {"weight": 50}],
            "analysis": {"margins": {"speedPercent": 5}},
        },
        **more,
    }


def evidence(canary: Tally, blocks: int, pods: int = 3) -> Evidence:
    """The same minute again and again, with some noise in both arms, and pods that differ a little."""
    total = EMPTY
    for number in range(blocks):
        wobble = 1 + 0.04 * math.sin(2.3 * number)
        slower = [replace(THREE, decode_seconds=560 * (1 + 0.01 * index)) for index in range(pods)]
        noisy = replace(canary, decode_seconds=canary.decode_seconds * wobble)
        total = total.add(Block({f"{STABLE}-s{i}": tally for i, tally in enumerate(slower)}, {f"{CANARY}-c0": noisy}))
    return total


DECISIONS = (
    Decision(NOW - 186_400, "Promoted", f"{STABLE} is stable: speed +1.0 % [-2.0, +4.0]", STABLE),
    Decision(NOW - 900, "CanaryStarted", f"{CANARY} starts; {STABLE} stays stable", CANARY),
    Decision(NOW - 700, "StepReached", "asked 5%, reachable 25% (1 of 4 pods)", CANARY),
)
ROLLOUT = Rollout(CANARY, ("uid-s", "uid-c"), step=1, reached=NOW - 100, blocks_before=11)


def compared(comparable=False, speed=5, **dropped):
    policy = Policy(speed_percent=speed, acceptance_points=5, error_points=1, max_blocks=120)
    return Comparison(("uid-s", "uid-c"), STABLE, CANARY, comparable, policy, 60, dropped)


def configmap(resource, memory, found=None, about=None):
    data = {"memory": memory.to_json(), **({"evidence": found.to_json()} if found else {})}
    return evidence_map(resource, data | ({"compared": about.to_json()} if about else {}))


def lengths(owned, stable: int, canary: int):
    for item in owned:
        if item["kind"] == "ControllerRevision":
            item["data"] = {"method": "ngram", "numSpeculativeTokens": {STABLE: stable, CANARY: canary}.get(
                item["metadata"]["name"], 7)}  # fmt: skip


@pytest.fixture
def cases(scene):
    """A case by name: from the scenes of `status`, with a record."""

    def midway():
        resource, owned = scene("canary")
        resource["spec"] = spec(5)
        resource["status"] |= {"message": "20 s more at 25%", "reason": "CanaryDwelling"}
        resource["status"]["step"] = {"index": 2, "of": 3, "askedWeight": "25%"}
        lengths(owned, 3, 5)
        about = compared(**{"warm-up": 12, "gap": 1, "early": 1})
        return resource, owned, configmap(resource, Memory(ROLLOUT, DECISIONS), evidence(FIVE, 13), about)

    def last_step():
        resource, owned = scene("canary")
        resource["spec"] = spec(3, restart="again", replicas=2)
        resource["status"] |= {"message": "speed -1.7 % [-6.8, +5.2] against a margin of 5 %, 40 blocks"}
        resource["status"]["step"] = {"index": 3, "of": 3, "askedWeight": "50%", "reachable": "25%"}
        lengths(owned, 3, 3)
        worse = replace(THREE, decode_seconds=575)
        at = replace(ROLLOUT, step=2, reached=NOW - 700)
        return resource, owned, configmap(resource, Memory(at, DECISIONS), evidence(worse, 40))

    def first():
        resource, owned = scene("first-rollout")
        resource["spec"] = spec(3)
        for item in owned:
            if item["kind"] == "ControllerRevision":
                item["metadata"]["annotations"][names.IDENTITY] = identity(resource["spec"])
        lengths(owned, 3, 3)
        told = Decision(NOW - 95, "RevisionCreated", f"{STABLE} is the first revision", STABLE)
        return resource, owned, configmap(resource, Memory(Rollout(STABLE, ("", "uid-s")), (told,)))

    def aborted():
        resource, owned = scene("aborted")
        resource["spec"] = spec(5)
        for item in owned:
            if item["kind"] == "ControllerRevision" and item["metadata"]["name"] == CANARY:
                item["metadata"]["annotations"][names.IDENTITY] = identity(resource["spec"])
        lengths(owned, 3, 5)
        message = "speed -21.4 % [-28.0, -14.8] against a margin of 5 %, 11 blocks"
        ended = Decision(NOW - 45, "CanaryRegressed", message, CANARY)
        return resource, owned, configmap(resource, Memory(None, (*DECISIONS, ended)))

    def rest():
        resource, owned = scene("at-rest")
        resource["spec"] = spec(3)
        lengths(owned, 3, 3)
        return resource, owned, configmap(resource, Memory(None, DECISIONS[:1]))

    made = {"midway": midway, "last-step": last_step, "first": first, "aborted": aborted, "rest": rest}
    return lambda name: made[name]()


@pytest.fixture
def past(cases):
    """A case whose rollout is over and whose evidence is still there."""

    def promoted():
        resource, owned, _ = cases("rest")
        return resource, owned, configmap(resource, Memory(None, DECISIONS[:1]), evidence(FIVE, 13), compared(missed=3))

    def regressed():
        resource, owned, _ = cases("aborted")
        slow = replace(FIVE, decode_seconds=720)
        return resource, owned, configmap(resource, Memory(None, DECISIONS), evidence(slow, 9), compared())

    made = {"promoted": promoted, "regressed": regressed}
    return lambda name: made[name]()


def told(resource, owned, found, unread=""):
    return case(resource, owned, unread, record(resource, found))


@pytest.mark.parametrize(("width", "encoding"), [(120, "utf-8"), (80, "ascii")])
@pytest.mark.parametrize("name", ["midway", "last-step", "first", "aborted", "rest"])
def test_an_explanation_is_as_recorded(name, width, encoding, cases, text, golden, now):
    resource, owned, found = cases(name)
    this = told(resource, owned, found)
    written = text(explained(this, now), width, encoding)
    assert max(map(len, written.splitlines())) <= width
    golden(f"explain-{name}{'-ascii' if encoding == 'ascii' else ''}", written)


@pytest.mark.parametrize(("width", "encoding"), [(120, "utf-8"), (80, "ascii")])
@pytest.mark.parametrize("name", ["promoted", "regressed"])
def test_the_last_decision_is_shown_again(name, width, encoding, past, text, golden, now):
    written = text(explained(told(*past(name)), now), width, encoding)
    assert max(map(len, written.splitlines())) <= width
    golden(f"explain-{name}{'-ascii' if encoding == 'ascii' else ''}", written)


def test_a_past_rollout_is_judged_as_it_was_and_not_by_the_margins_of_now(past):
    resource, owned, found = past("promoted")
    before = told(resource, owned, found).verdict
    resource["spec"]["rollout"]["analysis"]["margins"]["speedPercent"] = 1
    after = told(resource, owned, found)
    assert after.verdict == before
    assert after.verdict.metrics[0].margin == 5
    assert all(after.left(item) == "" for item in after.verdict.metrics)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda found: None, "its ConfigMap does not exist"),
        (lambda found: {**found, "data": {**found["data"], "memory": "{}"}}, "checksum does not hold"),
        (lambda found: {**found, "metadata": {"name": "llama-evidence"}}, "is not this fleet's"),
    ],
)
def test_a_record_that_cannot_be_believed_is_named_and_status_stands_in(spoil, why, cases, text, now):
    resource, owned, found = cases("midway")
    this = told(resource, owned, spoil(found))
    written = text(explained(this, now))
    assert why in written
    assert this.record.memory == Memory()
    assert "llama-9d2zx4kv has 25%; the record does not say at which step" in written
    assert "+24.1 % [+18.0, +30.2]" in written  # of status
    assert "asked 5%, reachable 25% (1 of 4 pods)" in written  # status.decisions
    assert "How it went" not in written


def test_evidence_of_an_unknown_format_leaves_the_memory(cases):
    resource, _, _ = cases("midway")
    data = {"memory": Memory(ROLLOUT, DECISIONS).to_json(), "evidence": '{"format": 2}'}
    read = record(resource, evidence_map(resource, data))
    assert read.memory.rollout == ROLLOUT
    assert read.evidence == EMPTY
    assert "older than the operator" in read.trouble


def test_what_may_not_be_read_is_said_and_acceptance_is_left_out(cases, text, now):
    resource, owned, found = cases("midway")
    pods = [item for item in owned if item["kind"] == "Pod"]
    this = told(resource, pods, found, "controllerrevisions.apps is forbidden")
    written = text(explained(this, now))
    assert this.stage is Stage.CANARY
    assert "acceptance  unknown: the revisions could not be read, so it is left out here" in written
    assert "controllerrevisions.apps is forbidden" in written


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"method": "none"}, "not compared: neither arm drafts anything"),
        (
            {"template": {"spec": {"containers": [{"args": ["--speculative-config", HIDDEN]}]}}},
            "not compared: vLLM counts",
        ),
    ],
)
def test_arms_that_are_set_alike_but_show_no_acceptance_are_not_said_to_be_compared(payload, said, cases, text, now):
    resource, owned, found = cases("last-step")
    for item in owned:
        if item["kind"] == "ControllerRevision":
            item["data"] |= payload
    assert f"acceptance  {said}" in text(explained(told(resource, owned, found), now))


@pytest.mark.parametrize("limit", [None, 2000])
def test_first_tokens_are_compared_where_they_have_a_limit(limit, cases, text, now):
    resource, owned, found = cases("midway")
    resource["spec"] |= {"slo": {"timeToFirstTokenMs": limit}} if limit else {}
    written = text(explained(told(resource, owned, found), now))
    assert ("the share of first tokens that come later than 2 s" in written) is bool(limit)


def demanded(resource, owned, found, at=NOW):
    return {item.what: (item.met, item.state) for item in demands(told(resource, owned, found), at)}


def test_between_steps_it_asks_for_time_blocks_and_traffic(cases):
    resource, owned, found = cases("midway")
    asked = demanded(resource, owned, found)
    assert asked == {
        "2m here": (False, "20s left"),
        "3 blocks here": (False, "2 by now"),
        "traffic on both": (True, "seen"),
    }
    assert demanded(resource, owned, found, NOW + 30)["2m here"] == (True, "2m10s by now")


def test_at_a_cohort_step_it_asks_for_time_and_drafts_and_compares_nothing(cases):
    resource, owned, found = cases("midway")
    internal = {"name": "internal", "header": {"name": "x-audience", "value": "internal"}}
    resource["spec"]["traffic"] = {"gateway": {"name": "public", "namespace": "gateways"}, "cohorts": [internal]}
    steps = [{"cohort": "internal", "minSeconds": 120}] * 3
    resource["spec"]["rollout"] = {**resource["spec"].get("rollout", {}), "steps": [*steps, {"weight": 50}]}
    waiting = {"2m here": (False, "20s left"), "200 drafts of the cohort": (False, "counted once the time is over")}
    assert demanded(resource, owned, found) == waiting
    resource["status"]["message"] = "120 of 200 drafts from the cohort of late"
    asked = demanded(resource, owned, found, NOW + 30)
    assert asked["200 drafts of the cohort"] == (False, "120 of 200 drafts from the cohort of late")


def test_before_100_percent_it_asks_for_proof_of_what_is_compared(cases):
    resource, owned, found = cases("last-step")
    asked = demanded(resource, owned, found)
    assert asked.pop("60s here") == (True, "11m by now")
    assert asked == {
        "proof of speed": (False, "Inconclusive, not by waiting: too few pods"),
        "proof of acceptance": (True, "NonInferior"),
        "proof of errors": (True, "NonInferior"),
    }


def test_a_canary_without_traffic_is_asked_for_it(cases):
    resource, owned, _ = cases("midway")
    idle = evidence(replace(FIVE, decode_outputs=0, decode_seconds=0, accepted=0, http_requests=0, finished=0), 13)
    met, state = demanded(resource, owned, configmap(resource, Memory(ROLLOUT), idle))["traffic on both"]
    assert not met
    assert state == "speed: no decoding on canary in 13 blocks; errors: no requests on canary in 13 blocks"


@pytest.mark.parametrize(
    ("rollout", "title", "asked"),
    [
        (replace(ROLLOUT, reached=None), "25% asks for", {"pods": (False, "20 s more at 25%")}),
        (replace(ROLLOUT, promoting="proof"), "100% asks for", {"pods": (False, "20 s more at 25%")}),
        (replace(ROLLOUT, step=7), "100% asks for", None),
    ],
)
def test_the_road_to_a_step_asks_for_pods(rollout, title, asked, cases, text, now):
    resource, owned, _ = cases("midway")
    found = configmap(resource, Memory(rollout, DECISIONS), evidence(FIVE, 13))
    if asked is not None:
        assert demanded(resource, owned, found) == asked
    assert title in text(explained(told(resource, owned, found), now))


def test_a_pause_is_asked_to_end_but_for_an_ordered_promotion(cases):
    resource, owned, found = cases("midway")
    resource["spec"]["paused"] = True
    assert demanded(resource, owned, found)["not paused"] == (False, "spec.paused is true")
    ordered = configmap(resource, Memory(replace(ROLLOUT, ordered=True), DECISIONS))
    assert "not paused" not in demanded(resource, owned, ordered)


def test_a_split_that_a_gateway_does_not_make_is_asked_for_beside_the_evidence(cases):
    resource, owned, _ = cases("midway")
    found = configmap(resource, Memory(ROLLOUT, DECISIONS), evidence(FIVE, 13))
    assert "the split" not in demanded(resource, owned, found)
    said = "the canary got 0 of 400 requests in 1 blocks: 0.0% where 20% was asked"
    resource["status"] |= {"reason": "SplitNotHonoured", "message": said}
    assert demanded(resource, owned, found)["the split"] == (False, said)


def test_an_invalid_edit_is_explained_by_the_spec_that_is_in_force(cases):
    resource, owned, _ = cases("last-step")
    last = {key: value for key, value in resource["spec"].items() if key != "replicas"}
    found = configmap(resource, Memory(ROLLOUT, DECISIONS, last), evidence(THREE, 13))
    resource["spec"] = {"replicas": 2, "model": 3}
    this = told(resource, owned, found)
    assert this.spec is not None
    assert this.spec.rollout.steps[1].min_seconds == 120
    assert this.verdict is not None


def test_without_any_valid_spec_nothing_is_judged(cases, text, now):
    resource, owned, found = cases("midway")
    resource["spec"] = {}
    this = told(resource, owned, found)
    assert (this.spec, this.looks) == (None, ())
    assert "Why this weight" in text(explained(this, now))


def test_the_promoting_decision_may_be_forgotten(cases, text, now):
    resource, owned, _ = cases("rest")
    resource["status"]["decisions"] = []
    written = text(explained(told(resource, owned, configmap(resource, Memory())), now))
    assert "llama-6b7f9c42 has all traffic, since promotion 2\n" in written
    assert "the decision that promoted it is no longer remembered" in written


def test_few_drafts_make_no_forecast(cases, text, now):
    resource, owned, _ = cases("midway")
    few = replace(FIVE, drafts=10, draft_tokens=50, accepted=25, per_position=(9, 7, 5, 3, 1))
    found = configmap(resource, Memory(ROLLOUT), evidence(few, 13))
    written = text(explained(told(resource, owned, found), now))
    assert "canary: 130 of 200 drafts, too few for a forecast" in written
    assert "1  76%     1.76 tokens  90%\n" in written


def test_an_arm_without_speculation_has_no_positions(cases, text, now):
    resource, owned, _ = cases("midway")
    off = replace(FIVE, drafts=0, draft_tokens=0, accepted=0, per_position=(), speculating=False)
    written = text(explained(told(resource, owned, configmap(resource, Memory(ROLLOUT), evidence(off, 9))), now))
    assert "canary: does not speculate" in written
    assert "? acc" not in written


def test_a_schedule_is_written_out(cases, text, now):
    resource, owned, found = cases("midway")
    schedule = [{"minBatch": 1, "maxBatch": 16, "tokens": 5}, {"minBatch": 17, "tokens": 2}]
    for item in owned:
        if item["kind"] == "ControllerRevision" and item["metadata"]["name"] == CANARY:
            item["data"]["schedule"] = schedule
    written = " ".join(text(explained(told(resource, owned, found), now)).split())
    assert "spec.speculation.schedule: 5 at batch 1-16, 2 at batch 17+" in written
    assert "schedule: unset on stable, 2 ranges on the canary" in written


def test_all_ten_decisions_are_listed_newest_first(cases, text, now):
    resource, owned, _ = cases("rest")
    memory = Memory()
    for number in range(12):
        memory = memory.decided(Decision(NOW - 100 + number, "StepReached", f"number {number}", STABLE))
    written = text(explained(told(resource, owned, configmap(resource, memory)), now))
    said = [line.rsplit(" ", 1)[1] for line in written.splitlines() if "StepReached" in line]
    assert said == [str(number) for number in range(11, 1, -1)]
