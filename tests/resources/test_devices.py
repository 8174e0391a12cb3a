"""How many accelerators are free, by node."""

from specfleet.resources.devices import Devices, devices_by_node, told

GPU = "amd.com/gpu"


def node(name, count):
    return {"metadata": {"name": name}, "status": {"allocatable": {GPU: str(count), "cpu": "8"}}}


def pod(node, *counts, phase="Running", init=()):
    containers = [{"resources": {"limits": {GPU: str(count)}}} for count in counts]
    before = [{"resources": {"limits": {GPU: str(count)}}} for count in init]
    return {"spec": {"nodeName": node, "containers": containers, "initContainers": before}, "status": {"phase": phase}}


def test_what_pods_ask_for_is_not_free_until_they_have_ended():
    pods = [
        pod("a", 4),
        pod("a", 1, 1, init=(1,)),
        pod("a", 8, phase="Succeeded"),
        pod(None, 8),
        pod("b", 0, init=(2,)),
    ]
    found = devices_by_node([node("a", 8), node("b", 2), node("c", 0)], pods, GPU)
    assert {name: (item.free, item.able) for name, item in found.items()} == {"a": (2, 8), "b": (0, 2)}


def test_the_freest_nodes_are_named_first_and_not_all():
    free = {f"n{number}": Devices(8, 8 - number % 3) for number in range(6)}
    assert told(free, GPU) == "amd.com/gpu free: n2 2 of 8, n5 2 of 8, n1 1 of 8, n4 1 of 8 and 2 nodes more"


def test_a_cluster_without_the_device_says_so():
    assert told({}, GPU) == "no node has any amd.com/gpu"


def test_a_node_whose_plugin_is_gone_is_named_with_what_its_pods_hold():
    found = devices_by_node([node("a", 0), node("b", 8)], [pod("a", 4)], GPU)
    assert [name for name, item in found.items() if item.lost] == ["a"]
    lost = "node a has lost its amd.com/gpu: 4 in use, 0 allocatable"
    assert told(found, GPU) == f"{lost}; amd.com/gpu free: b 8 of 8"
    assert told({"a": found["a"]}, GPU) == f"{lost}; no node has any amd.com/gpu"
