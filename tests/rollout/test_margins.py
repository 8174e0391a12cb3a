"""Margins and the pods that must resolve them."""

import pytest

from specfleet.api.v1alpha1 import SpecDecodeDeploymentSpec
from specfleet.judgement.verdict import Metric
from specfleet.rollout.margins import last_shape, policy, remarks
from specfleet.rollout.shape import Shape


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
    assert list(remarks(fleet)) == [
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
    assert list(remarks(spec(replicas=4, rollout={"analysis": {"margins": {"speedPercent": 9}}}))) == []


def test_many_pods_resolve_the_default():
    fleet = spec(replicas=16)
    assert policy(fleet).margin(Metric.SPEED) == 5
    assert list(remarks(fleet)) == []


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
