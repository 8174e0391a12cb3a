"""The operator's own Prometheus metrics."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from specfleet.controller.cache import Key
from specfleet.judgement.selfcheck import Checked
from specfleet.plan import Plan


class Metrics:
    """All families, in a registry of their own. Series of an SDD go with it."""

    def __init__(self, queue_depth: Callable[[], float], leader: Callable[[], bool]) -> None:
        self.registry = CollectorRegistry()
        self.passes = Counter("specfleet_reconcile", "Passes over one resource.", ["result"], registry=self.registry)
        self.seconds = Histogram("specfleet_reconcile_duration_seconds", "Time of one pass.", registry=self.registry)
        self.scrape_failures = Counter(
            "specfleet_scrape_failures", "Metrics pages that could not be read.", registry=self.registry
        )
        self.decisions = Counter("specfleet_decisions", "What was decided.", ["reason"], registry=self.registry)
        labels = ["namespace", "name"]
        self.weight = Gauge("specfleet_canary_weight_ratio", "The canary's share.", labels, registry=self.registry)
        self.ready = Gauge("specfleet_ready", "1 where the Ready condition is True.", labels, registry=self.registry)
        self.tokens_per_step = Gauge(
            "specfleet_tokens_per_step",
            "Tokens a step that verifies a draft emits, at this proposal length and at shorter ones.",
            [*labels, "length"],
            registry=self.registry,
        )
        self.checks = Counter(
            "specfleet_self_check_comparisons",
            "Halves of a stable revision's pods that were compared as if one were a canary.",
            labels,
            registry=self.registry,
        )
        self.alarms = Counter(
            "specfleet_self_check_false_alarms",
            "Metrics that were called a regression there, at a margin of 0.",
            [*labels, "metric"],
            registry=self.registry,
        )
        self.spread = Gauge(
            "specfleet_pod_spread_ratio",
            "Standard deviation between pods of the stable revision, over an hour at rest.",
            [*labels, "metric"],
            registry=self.registry,
        )
        depth = Gauge("specfleet_queue_depth", "Resources that wait for a pass, or are in one.", registry=self.registry)
        depth.set_function(queue_depth)
        lead = Gauge("specfleet_leader", "1 in the operator that holds the Lease.", registry=self.registry)
        lead.set_function(lambda: float(leader()))

    def checked(self, key: Key, found: Checked) -> None:
        """Halves of a stable revision's pods were compared."""
        self.checks.labels(key.namespace, key.name).inc()
        for metric in found.alarms:
            self.alarms.labels(key.namespace, key.name, metric.value).inc()

    def planned(self, key: Key, plan: Plan) -> None:
        """Take the figures of a pass."""
        for event in plan.events:
            self.decisions.labels(event.reason).inc()
        if plan.status is None:
            return
        weight = str(plan.status.get("weight") or "0%").rstrip("%")
        self.weight.labels(key.namespace, key.name).set(float(weight) / 100)
        for measured in (self.tokens_per_step, self.spread):  # what is no longer known goes
            measured.remove_by_labels({"namespace": key.namespace, "name": key.name})
        for length, tokens in enumerate(plan.tokens_per_step, start=1):
            self.tokens_per_step.labels(key.namespace, key.name, str(length)).set(tokens)
        for metric, spread in plan.spread.items():
            self.spread.labels(key.namespace, key.name, metric.value).set(spread / 100)
        conditions = {item["type"]: item["status"] for item in plan.status.get("conditions", ())}
        self.ready.labels(key.namespace, key.name).set(float(conditions.get("Ready") == "True"))

    def forget(self, key: Key) -> None:
        """The SDD is gone."""
        for family in (self.weight, self.ready, self.tokens_per_step, self.checks, self.alarms, self.spread):
            family.remove_by_labels({"namespace": key.namespace, "name": key.name})
