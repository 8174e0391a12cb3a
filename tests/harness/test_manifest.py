"""The manifests of scenarios."""

from harness.manifest import manifest


def test_a_scenario_that_changes_its_manifest_changes_nobody_elses() -> None:
    mine = manifest("mine")
    mine["spec"]["speculation"]["numSpeculativeTokens"] = 1
    mine["spec"]["rollout"]["analysis"]["margins"]["speedPercent"] = 50
    yours = manifest("yours")["spec"]
    assert yours["speculation"]["numSpeculativeTokens"] == 3
    assert yours["rollout"]["analysis"]["margins"]["speedPercent"] == 15
