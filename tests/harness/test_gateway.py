"""What of the gateways can be held without one: their names, and what a route offers."""

import pytest

from harness import gateway
from harness.errors import HarnessError
from harness.witness import Look, offered


def test_unknown_gateway_is_refused_with_the_known_ones() -> None:
    with pytest.raises(HarnessError, match="no gateway 'nginx': one of envoy, contour"):
        gateway.named("nginx")


@pytest.mark.parametrize("kind", gateway.KINDS.values())
def test_envoy_listens_at_the_same_port_whatever_the_listener_says(kind: type[gateway.Gateway]) -> None:
    assert kind.address == "http://10.99.0.2:18080"
    assert kind.port + (8000 if kind is gateway.Contour else 0) == 18080


def test_a_route_divides_by_its_weights_and_the_rest_goes_where_the_service_points() -> None:
    look = Look(0.0, "llama-6b7f9c42", {"llama-6b7f9c42": 3, "llama-9d2zx4kv": 1}, {"": 90, "llama-9d2zx4kv": 10})
    assert look.share("llama-9d2zx4kv") == pytest.approx(0.1)
    assert look.share("llama-6b7f9c42") == pytest.approx(0.9)


def test_without_a_route_the_service_decides() -> None:
    assert Look(0.0, "llama-6b7f9c42", {"llama-9d2zx4kv": 1}).share("llama-9d2zx4kv") == 0
    assert Look(0.0, "*", {"llama-6b7f9c42": 3, "llama-9d2zx4kv": 1}).share("llama-9d2zx4kv") == 0.25


def test_the_last_rule_is_the_one_for_everybody() -> None:
    cohort = {"matches": [{"headers": [{"name": "x-audience", "value": "internal"}]}]}
    hashed, named = {"name": "llama-9d2zx4kv", "weight": 10}, {"name": "llama", "weight": 90}
    rules = [{**cohort, "backendRefs": [hashed]}, {"backendRefs": [named, hashed]}]
    route = {"kind": "HTTPRoute", "metadata": {"name": "llama", "labels": {}}, "spec": {"rules": rules}}
    assert offered([route], 0.0).routed == {"": 90, "llama-9d2zx4kv": 10}
