"""Margins and the pods that must resolve them."""

from dataclasses import replace

import pytest

from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.judgement.verdict import Metric
from specfleet.rollout.margins import last_shape, policy, remarks, resolvable, widened
from specfleet.rollout.shape import Shape
from specfleet.telemetry.counters import Tally
from specfleet.telemetry.evidence import EMPTY, Block


def spec(**fields):
    return SpecDecodeDeploymentSpec.model_validate(
        {
            "model": {"source": {"huggingFace": {"repo": "Qwen/Qwen3-8B"}}},
            "speculation": {"method": "ngram", "numSpeculativeTokens": 3},
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        ({"replicas": 1}, Shape(1, 1)),
        ({"replicas": 4}, Shape(2, 2)),
        ({"replicas": 4, "rollout": {"steps": [{"weight": 5}]}}, Shape(1, 4)),
        ({"replicas": 4, "rollout": {"steps": [{"weight": 5}], "maxSurge": 0}}, Shape(1, 3)),
        ({"replicas": 10, "rollout": {"maxSurge": "50%"}}, Shape(7, 7)),
        ({"replicas": 1, "rollout": {"maxSurge": 0}}, None),
    ],
)
def test_the_last_step_has_the_pods_that_the_rollout_would_take(fields, shape):
    assert last_shape(spec(**fields)) == shape


def test_a_margin_that_nobody_set_follows_the_pods_and_says_so():
    fleet = spec(replicas=4)
    assert policy(fleet).margin(Metric.SPEED) == 6
    assert policy(fleet).margin(Metric.ACCEPTANCE) == 5
    assert list(remarks(fleet)) == []
    assert list(widened(fleet)) == [
        "spec.rollout.analysis.margins.speedPercent is widened from 5 to 6: 2 canary and 2 stable pods at the last step"
        " resolve no less than 5.7"
    ]


def test_it_follows_no_further_than_three():
    fleet = spec(replicas=1)
    assert policy(fleet).margin(Metric.SPEED) == 8
    assert list(remarks(fleet)) == [
        "spec.rollout.analysis.margins.speedPercent is 8, but 1 canary and 1 stable pods at the last step resolve no"
        " less than 8.4: no canary may ever be proven; set 9, or add replicas"
    ]


def test_a_margin_that_the_user_set_stays():
    fleet = spec(replicas=4, rollout={"analysis": {"margins": {"speedPercent": 5}}})
    assert policy(fleet).margin(Metric.SPEED) == 5
    assert len(list(remarks(fleet))) == 1
    assert list(widened(fleet)) == []
    assert list(remarks(spec(replicas=4, rollout={"analysis": {"margins": {"speedPercent": 9}}}))) == []


def test_many_pods_resolve_the_default():
    fleet = spec(replicas=16)
    assert policy(fleet).margin(Metric.SPEED) == 5
    assert list(remarks(fleet)) == []
    assert list(widened(fleet)) == []


def test_without_room_for_a_canary_that_is_the_remark():
    assert list(remarks(spec(replicas=1, rollout={"maxSurge": 0}))) == [
        "spec.rollout.maxSurge leaves no room for a canary beside the only pod of stable: it waits for Promote, and "
        "then 0 pods serve while the new one starts, which may take 3600 s; allow a surge or add replicas"
    ]


def test_without_speculation_acceptance_needs_no_margin():
    tight = {"analysis": {"margins": {"acceptancePoints": 1, "speedPercent": 50}}}
    assert len(list(remarks(spec(replicas=1, rollout=tight)))) == 1
    assert list(remarks(spec(replicas=1, rollout=tight, speculation={"method": "none"}))) == []


def test_without_replicas_there_is_nothing_to_say():
    assert list(remarks(spec(replicas=0))) == []


def test_first_tokens_have_a_margin_where_they_have_a_limit():
    lone = {"replicas": 1, "slo": {"timeToFirstTokenMs": 2000}}
    assert (policy(spec(**lone)).margin(Metric.TTFT), policy(spec(**lone)).ttft_limit) == (3, 2.0)
    assert any("ttftPoints is widened from 2 to 3" in line for line in widened(spec(**lone)))
    assert not any("ttft" in line for line in (*remarks(spec(replicas=1)), *widened(spec(replicas=1))))
    assert policy(spec(replicas=1)).ttft_limit is None
    assert policy(spec(replicas=1, slo={"timePerOutputTokenMs": 40})).ttft_limit is None


def test_the_plan_with_which_a_rollout_began_decides_how_far_a_margin_widens():
    assert policy(spec(replicas=16), Shape(1, 1)).margin(Metric.SPEED) == 8
    assert policy(spec(replicas=1), Shape(2, 2)).margin(Metric.SPEED) == 6
    remark = list(remarks(spec(replicas=1), begun=Shape(2, 2)))
    assert remark == [
        "spec.rollout.analysis.margins.speedPercent is 6, but 1 canary and 1 stable pods at the last step resolve no"
        " less than 8.4: no canary may ever be proven; set 9, or add replicas"
    ]


def measured(noise, blocks=20):
    """Two pods of each arm that decode at the same speed, give or take `noise` percent from pod to pod."""
    total = EMPTY
    for number in range(blocks):
        slow, wobble = 1 + noise / 100, 1 + 0.02 * (-1) ** number
        tally = Tally(decode_outputs=6000, accepted=9000, decode_seconds=500 * wobble, iterations=750, finished=60)
        other = replace(tally, decode_seconds=500 * slow)
        total = total.add(Block({"s1": tally, "s2": other}, {"c1": tally, "c2": other}))
    return total


def test_what_can_be_resolved_follows_the_fleets_own_noise_once_there_is_evidence():
    fleet = spec(replicas=4)
    shipped = resolvable(fleet)
    quiet, loud = (resolvable(fleet, measured(noise)) for noise in (0, 12))
    assert quiet[Metric.SPEED] < shipped[Metric.SPEED] < loud[Metric.SPEED]
    assert resolvable(fleet, measured(12, blocks=7)) == shipped
    assert resolvable(spec(replicas=1, rollout={"maxSurge": 0})) == {}


def test_a_margin_that_the_fleets_noise_makes_hopeless_is_remarked_in_whole_numbers_and_stays():
    fleet = spec(replicas=4)
    (said,) = remarks(fleet, resolvable(fleet, measured(12)))
    assert "speedPercent is 6, but 2 canary and 2 stable pods" in said
    assert ".0: no canary may ever be proven" in said
    assert policy(fleet).margin(Metric.SPEED) == 6


def test_what_a_schedule_and_options_make_of_acceptance_is_in_the_policy():
    assert policy(spec()).scheduled is policy(spec()).hidden is False
    scheduled = {"method": "ngram", "numSpeculativeTokens": 3, "schedule": [{"minBatch": 1, "tokens": 2}]}
    assert policy(spec(speculation=scheduled)).scheduled
    options = {"method": "ngram", "numSpeculativeTokens": 3, "options": {"rejection_sample_method": "synthetic"}}
    assert policy(spec(speculation=options)).hidden
