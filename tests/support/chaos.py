"""What may happen to a fleet behind a gateway, in any order: people, pods, gateways, networks, the operator itself."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fake_fleet import Object
from fake_gateway import gateway_object
from route_watch import RouteWatch
from specfleet.rollout.world import pod
from story import Story
from watchdog import STRANGER

HOWS = ("crash-before", "crash-after", "409", "429", "500", "timeout", "lost")
CANARIES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {},
    {"accept": 0.03},
    {"errors": 0.3},
    {"garbage": True},
    {"crash": True},
    {"dark": True},
    {"pace": 1.6},
    {"start": 50.0},
)
LENGTHS = (3, 3, 4, 5, 6)
ORDERS = ("Promote", "Promote", "Abort", "Retry", "Undo")


@dataclass(slots=True)
class Chaos:
    """Lets things happen to a story, one at a time, as `random` has it. `at_rest` is the user's own route as in Git,
    None where the operator owns the route."""

    story: Story
    random: Random
    watch: RouteWatch
    at_rest: Object | None = None
    orders: int = 0
    happenings: list[tuple[int, Callable[[], Awaitable[None] | None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.happenings = [
            (14, self._edit),
            (6, self._replicas),
            (4, self._pause),
            (8, self._order),
            (8, self._behave),
            (6, self._break_pod),
            (5, self._rewrite),
            (2, self._delete_route),
            (3, self._gateway_object),
            (5, self._gateway),
            (3, self._refs),
            (4, self._lag),
            (10, self._calls),
            (4, self._restart),
            (2, self._annotate),
        ]

    async def happen(self) -> None:
        """One thing happens, then some time passes."""
        weights = [weight for weight, _ in self.happenings]
        ((_, what),) = self.random.choices(self.happenings, weights)
        after = what()
        if after is not None:
            await after
        await self.story.run(self.random.choice((1, 2, 5, 5, 10, 20, 30, 60)))

    def calm(self) -> None:
        """Everything is well from now on, and a person wants the newest spec."""
        story, gateway = self.story, self.story.fleet.gateway
        assert gateway is not None
        story.kube.spare()
        story.lag = self.watch.lag = story.watchdog.lag = gateway.late = 0.0
        gateway.frozen, gateway.unresolved, gateway.refuses = False, set(), ""
        gateway.kick()
        story.kube.put(gateway_object())
        for number in range(1, 100):
            story.fleet.behaviours.pop(number, None)
        self._restore()
        story.edit("all is well again", paused=False, replicas=max(2, story.watchdog.replicas()))

    def promote(self) -> None:
        """A person orders the newest revision."""
        self._ordered("Promote", self.story.status.get("canary", {}).get("revision") or self.story.newest)

    # People.

    def _edit(self) -> None:
        length = self.random.choice(LENGTHS)
        self.story.edit(f"numSpeculativeTokens -> {length}", speculation={"numSpeculativeTokens": length})

    def _replicas(self) -> None:
        replicas = self.random.choice((0, 1, 2, 3, 4, 4, 5))
        self.story.edit(f"replicas -> {replicas}", replicas=replicas)

    def _pause(self) -> None:
        paused = not self.story.sdd["spec"].get("paused")
        self.story.edit(f"paused: {paused}", paused=paused)

    def _order(self) -> None:
        self._ordered(self.random.choice(ORDERS), self.random.choice(self.story.revisions[-3:]).name)

    def _ordered(self, what: str, revision: str) -> None:
        self.orders += 1
        action = {"type": what, "revision": revision, "id": str(self.orders)}
        self.story.edit(f"{what} {revision}", rollout={"action": action})

    # Pods.

    def _behave(self) -> None:
        newest = self.story.revisions[-1].number
        how = self.random.choice(CANARIES)
        number = newest if self.random.random() < 0.8 else self.random.randint(1, newest)
        self.story.behave(number, f"v{number} behaves: {how or 'well'}", **how)

    def _break_pod(self) -> None:
        there = [raw for raw in self.story.fleet.pods() if pod(raw).ready and not pod(raw).going]
        if not there:
            return
        raw, how = self.random.choice(there), self.random.choice(("kill", "restart"))
        self.story.say(f"{how} {raw['metadata']['name']}")
        getattr(self.story.fleet, how)(raw)

    # Gateways and routes.

    def _route(self) -> Object | None:
        return self.story.kube.find("HTTPRoute", self.story.key.namespace, self.story.route)

    def _rewrite(self) -> None:
        live = self._route()
        if live is None:
            return
        rule = live["spec"]["rules"][-1]
        ours = [item for item in rule["backendRefs"] if item["name"].startswith(self.story.key.name)]
        others = [item for item in rule["backendRefs"] if item not in ours]
        choices = {
            "rest": [{**ours[0], "name": self.story.key.name, "weight": 1}],
            "turned": [{**item, "weight": 1 + 99 * (place == len(ours) - 1)} for place, item in enumerate(ours)],
            "nothing": [{**item, "weight": 0} for item in ours],
        }
        what = self.random.choice(sorted(choices))
        self.story.say(f"{STRANGER} rewrites the weights: {what}")
        self.story.watchdog.excuse()
        rules = [*live["spec"]["rules"][:-1], {**rule, "backendRefs": [*others, *choices[what]]}]
        self.story.kube.managed({**live, "spec": {**live["spec"], "rules": rules}}, STRANGER)

    async def _delete_route(self) -> None:
        self.story.say("someone deletes the route")
        self.story.watchdog.excuse()
        self.story.kube.remove("HTTPRoute", self.story.key.namespace, self.story.route)
        if self.at_rest is not None:
            await self.story.run(self.random.choice((0.2, 5, 30)))
            self.story.say("and puts it back as it is in Git")
            self._restore()

    def _restore(self) -> None:
        """The user's own route is as it is in Git."""
        live = self._route()
        if self.at_rest is not None:
            self.story.watchdog.excuse()
            meta = (live or self.at_rest)["metadata"]
            self.story.kube.managed({**(live or {}), **self.at_rest, "metadata": meta}, STRANGER)

    def _gateway_object(self) -> None:
        there = self.story.kube.find("Gateway", "gateways", "public")
        self.story.say("the Gateway is deleted" if there else "the Gateway is back")
        if there:
            self.story.kube.remove("Gateway", "gateways", "public")
        else:
            self.story.kube.put(gateway_object())

    def _gateway(self) -> None:
        gateway = self.story.fleet.gateway
        assert gateway is not None
        if self.random.random() < 0.5:
            gateway.late = self.random.choice((0.0, 0.0, 5.0, 15.0, 30.0))
            self.story.say(f"the data plane is {gateway.late} s late")
        else:
            gateway.frozen = not gateway.frozen
            self.story.say(f"the gateway's controller {'stands still' if gateway.frozen else 'goes on'}")
            gateway.kick()

    def _refs(self) -> None:
        gateway = self.story.fleet.gateway
        assert gateway is not None
        if gateway.unresolved or gateway.refuses:
            gateway.unresolved, gateway.refuses = set(), ""
        elif self.random.random() < 0.7:
            gateway.unresolved = {self.story.newest}
        else:
            gateway.refuses = "NoMatchingParent"
        said = gateway.refuses or f"cannot use {', '.join(gateway.unresolved) or 'nothing'}"
        self.story.say(f"the gateway {said}")
        gateway.kick()

    def _annotate(self) -> None:
        live = self._route()
        if live is not None:
            notes = {**(live["metadata"].get("annotations") or {}), "example.com/note": str(self.random.random())}
            self.story.kube.put({**live, "metadata": {**live["metadata"], "annotations": notes}})

    # The operator and what is between it and the API server.

    def _lag(self) -> None:
        self.story.lag = self.watch.lag = self.story.watchdog.lag = self.random.choice((0.0, 0.0, 1.0, 4.0))
        self.story.say(f"watch events come {self.story.lag} s late")

    def _calls(self) -> None:
        at = len(self.story.kube.calls)
        for _ in range(self.random.randint(1, 4)):
            self.story.kube.fail_at(at + self.random.randint(1, 25), self.random.choice(HOWS))

    async def _restart(self) -> None:
        if self.random.random() < 0.5:
            self.story.restart("the operator dies")
        else:
            await self.story.away(12, "the operator is gone for 12 s")
