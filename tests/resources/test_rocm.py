"""Placement on AMD GPUs and AMD's environment."""

import itertools

import pytest

from specfleet.resources import rocm

NEW, OLD = "amd.com/gpu.device-id", "beta.amd.com/gpu.device-id"
ZONE_A = {"key": "zone", "operator": "In", "values": ["a"]}
ZONE_B = {"key": "zone", "operator": "In", "values": ["b"]}
NOT_NODE = {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}
IDS = ["75a3", "75b3"]


def _required(terms):
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _in(key, values=IDS):
    return {"key": key, "operator": "In", "values": values}


PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}
POD_ANTI = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}


@pytest.mark.parametrize(
    ("users", "merged"),
    [
        pytest.param({}, _required([{"matchExpressions": [_in(NEW)]}, {"matchExpressions": [_in(OLD)]}]), id="nothing"),
        pytest.param(
            _required([{"matchExpressions": [ZONE_A]}]),
            _required([{"matchExpressions": [ZONE_A, _in(NEW)]}, {"matchExpressions": [ZONE_A, _in(OLD)]}]),
            id="one term",
        ),
        pytest.param(
            _required([{"matchExpressions": [ZONE_A]}, {"matchExpressions": [ZONE_B]}]),
            _required(
                [
                    {"matchExpressions": [ZONE_A, _in(NEW)]},
                    {"matchExpressions": [ZONE_A, _in(OLD)]},
                    {"matchExpressions": [ZONE_B, _in(NEW)]},
                    {"matchExpressions": [ZONE_B, _in(OLD)]},
                ]
            ),
            id="two terms",
        ),
        pytest.param(
            _required([{"matchFields": [NOT_NODE]}]),
            _required(
                [
                    {"matchFields": [NOT_NODE], "matchExpressions": [_in(NEW)]},
                    {"matchFields": [NOT_NODE], "matchExpressions": [_in(OLD)]},
                ]
            ),
            id="a term on fields",
        ),
        pytest.param(_required([{}]), _required([{}]), id="an empty term still matches no node"),
        pytest.param(
            {"nodeAffinity": PREFERRED, **POD_ANTI},
            {
                "nodeAffinity": {
                    **PREFERRED,
                    **_required([{"matchExpressions": [_in(NEW)]}, {"matchExpressions": [_in(OLD)]}])["nodeAffinity"],
                },
                **POD_ANTI,
            },
            id="preferences and pod affinity stay",
        ),
    ],
)
def test_products_narrow_the_users_affinity(users, merged):
    assert rocm.placed(users, ["MI355X"]) == merged


def test_without_products_the_affinity_is_the_users():
    assert rocm.placed(POD_ANTI, []) == POD_ANTI


@pytest.mark.parametrize("node", ["x", [1], {"requiredDuringSchedulingIgnoredDuringExecution": "x"}])
def test_a_malformed_affinity_is_left_for_the_api_server_to_refuse(node):
    assert rocm.placed({"nodeAffinity": node}, ["MI300X"]) == {"nodeAffinity": node}


def test_a_malformed_term_is_left_for_the_api_server_to_refuse():
    assert rocm.placed(_required(["x"]), ["MI300X"]) == _required(["x"])


def test_an_unknown_product_is_looked_for_as_a_product_name():
    terms = rocm.placed({}, ["mi355x", "AMD_Instinct_MI999"])["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert [term["matchExpressions"][0] for term in terms] == [
        _in(NEW),
        _in(OLD),
        _in("amd.com/gpu.product-name", ["AMD_Instinct_MI999"]),
        _in("beta.amd.com/gpu.product-name", ["AMD_Instinct_MI999"]),
    ]


def test_no_device_id_belongs_to_two_products():
    numbers = list(itertools.chain.from_iterable(rocm.DEVICE_IDS.values()))
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize(("gpus", "size"), [(1, "8Gi"), (4, "8Gi"), (8, "16Gi"), (16, "32Gi")])
def test_shared_memory_grows_with_tensor_parallelism(gpus, size):
    assert rocm.shared_memory(gpus) == size


@pytest.mark.parametrize(
    ("backends", "wanted"),
    [
        ((None, None), False),
        (("TRITON_ATTN", None), False),
        (("ROCM_ATTN", None), False),
        (("ROCM_AITER_FA", None), True),
        ((None, "ROCM_AITER_MLA"), True),
        ((None, 7), False),
    ],
)
def test_aiter_is_switched_on_only_for_its_own_backends(backends, wanted):
    assert rocm.wants_aiter(*backends) is wanted


def test_caches_are_on_the_cache_volume_and_home_only_moves_without_root():
    as_root = rocm.environment(600, aiter=False, root=True)
    assert all(as_root[name].startswith(rocm.CACHE) for name in ("HF_HOME", "VLLM_CACHE_ROOT", "XDG_CACHE_HOME"))
    without = rocm.environment(600, aiter=False, root=False)
    assert set(without) - set(as_root) == {"HOME", "USER"}
