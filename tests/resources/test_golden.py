"""Each example's manifests, whole, as they go to the API server."""

import json

from kubernetes_validate import validate

from specfleet.resources.disruption import disruption_budget
from specfleet.resources.evidence import evidence_map
from specfleet.resources.revision import controller_revision, render
from specfleet.resources.service import revision_service, stable_service
from specfleet.resources.workload import deployment

KUBERNETES = "1.37.0"
REVISION = "llama-6b7f9c42"


def test_an_examples_deployment_is_as_recorded_and_valid(example, sdd, load, golden):
    payload = render("llama", REVISION, load(example))
    manifest = deployment(sdd, REVISION, payload, 2)
    validate(manifest, KUBERNETES, strict=True)
    golden(f"deployment-{example}", [manifest])


def test_an_examples_payload_is_as_recorded_and_survives_json(example, load, golden):
    payload = render("llama", REVISION, load(example))
    assert json.loads(json.dumps(payload)) == payload
    golden(f"payload-{example}", [{**payload, "template": "as in the Deployment"}])


def test_the_other_objects_are_as_recorded_and_valid(sdd, golden):
    manifests = [
        controller_revision(sdd, REVISION, 7, "ab" * 32, {"schema": 1}, {"specfleet.dev/promoted": "3"}),
        revision_service(sdd, REVISION),
        stable_service(sdd, REVISION),
        stable_service(sdd, None),
        disruption_budget(sdd, REVISION),
        evidence_map(sdd, {"blocks": "[]"}),
    ]
    for manifest in manifests:
        validate(manifest, KUBERNETES, strict=True)
    golden("other-objects", manifests)
