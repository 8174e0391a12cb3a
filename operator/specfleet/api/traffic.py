"""How requests reach the pods and how a canary gets its share. Pure."""

from typing import Annotated

from pydantic import ConfigDict, Field

from specfleet.api.base import Name, Part, map_list, rule, rules, set_list

SectionName = Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]


class Gateway(Part):
    """The listener of a Gateway under which the operator owns an HTTPRoute."""

    name: Name
    """Name of the Gateway."""
    namespace: Name | None = None
    """Namespace of the Gateway. Default: the namespace of the SpecDecodeDeployment."""
    section_name: SectionName | None = None
    """Listener of the Gateway. Default: all that admit the route."""


class Route(Part):
    """The user's own HTTPRoute in the same namespace; the operator changes only one rule's backendRefs."""

    name: Name
    """Name of the HTTPRoute."""
    rule: SectionName | None = None
    """Name of the rule whose backends the operator sets. Default: the only rule."""


class Header(Part):
    """An exact match on a request header."""

    name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][-A-Za-z0-9]*$")]
    """Name of the header."""
    value: Annotated[str, Field(min_length=1, max_length=256)]
    """Value that it must have."""


class Cohort(Part):
    """A group of clients that can be given a canary before anyone else."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Name of the cohort, for rollout.steps."""
    header: Header


class Traffic(Part):
    """Where traffic comes from. With neither gateway nor route, a canary's weight is its share of the ready pods."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!(has(self.gateway) && has(self.route))",
                "traffic: gateway (the operator owns the route) and route (you do) exclude each other; remove one",
            ),
            rule(
                "has(self.gateway) || !has(self.hostnames) || self.hostnames.size() == 0",
                "only the route that the operator owns has hostnames; set gateway or remove hostnames",
                "hostnames",
            ),
            rule(
                "has(self.gateway) || !has(self.cohorts) || self.cohorts.size() == 0",
                "need a gateway that matches headers; set traffic.gateway or remove cohorts",
                "cohorts",
            ),
        )
    )

    gateway: Gateway | None = None
    route: Route | None = None
    hostnames: Annotated[
        tuple[
            Annotated[
                str,
                Field(
                    max_length=253,
                    pattern=r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
                ),
            ],
            ...,
        ],
        Field(max_length=16, json_schema_extra=set_list()),
    ] = ()
    """Hostnames of the operator's HTTPRoute. Default: those of the listener."""
    request_timeout: Annotated[str, Field(max_length=32, pattern=r"^([0-9]{1,5}(h|m|s|ms)){1,4}$")] = "0s"
    """Longest time for a request through the gateway, as in Gateway API; 0s is none. Gateways cut long answers
    otherwise. Default: 0s."""
    cohorts: Annotated[tuple[Cohort, ...], Field(max_length=8, json_schema_extra=map_list("name"))] = ()
    """Groups of clients that rollout.steps can name."""
