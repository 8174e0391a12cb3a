"""How many accelerators are free, by node."""

from specfleet.resources.devices import free_by_node, told

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
    assert free_by_node([node("a", 8), node("b", 2), node("c", 0)], pods, GPU) == {"a": (2, 8), "b": (0, 2)}


def test_the_freest_nodes_are_named_first_and_not_all():
    free = {f"n{number}": (number % 3, 8) for number in range(6)}
    assert told(free, GPU) == "amd.com/gpu free: n2 2 of 8, n5 2 of 8, n1 1 of 8, n4 1 of 8 and 2 nodes more"


def test_a_cluster_without_the_device_says_so():
    assert told({}, GPU) == "no node has any amd.com/gpu"


def test_a_node_whose_plugin_is_gone_has_none():
    assert free_by_node([node("a", 0)], [pod("a", 4)], GPU) == {}
