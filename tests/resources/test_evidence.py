"""Evidence is believed only as it was written."""

import pytest

from specfleet.resources.evidence import evidence_map, read_evidence

DATA = {"canary": "[1, 2]", "stable": "[3]"}


def test_evidence_reads_back_as_written(sdd):
    assert read_evidence(evidence_map(sdd, DATA)) == DATA
    assert read_evidence(evidence_map(sdd, {})) == {}


@pytest.mark.parametrize(
    "spoiled",
    [
        {"canary": "[1, 3]"},
        {"extra": "x"},
        {"canary": "[3]", "stable": "[1, 2]"},
        {"checksum": "0"},
    ],
)
def test_edited_evidence_is_not_believed(sdd, spoiled):
    configmap = evidence_map(sdd, DATA)
    configmap["data"].update(spoiled)
    assert read_evidence(configmap) is None


def test_evidence_that_was_cut_short_is_not_believed(sdd):
    configmap = evidence_map(sdd, DATA)
    del configmap["data"]["stable"]
    assert read_evidence(configmap) is None
    assert read_evidence({"data": None}) is None
    assert read_evidence({}) is None


def test_the_checksums_key_is_not_for_evidence(sdd):
    with pytest.raises(ValueError, match="checksum"):
        evidence_map(sdd, {"checksum": "x"})
