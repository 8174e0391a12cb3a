"""One SpecDecodeDeployment on a stage: orders to it, waiting for it, and what it looks like from outside.

`status` is only told and waited for. What a scenario asserts comes from the load generator, the pods and the objects.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from harness.errors import HarnessError
from harness.load import Load
from harness.loadreport import Report
from harness.stage import Stage
from harness.witness import Log, Look

MIX = "chat=0.2,code=0.8"
OWNED = "controllerrevisions,deployments,replicasets,pods,services,endpointslices,poddisruptionbudgets,configmaps"
ROUTES = "httproutes"  # where the cluster knows them
WRITTEN = "controllerrevisions,deployments,services,poddisruptionbudgets,configmaps"  # by the operator
BACKGROUND = ("kube-root-ca.crt", "kubernetes")  # every namespace has them


NewFleet = Callable[..., "Fleet"]  # arguments as of `harness.manifest`; the fleet is at rest


def tokens(length: int) -> dict[str, Any]:
    """The edit that makes a new revision: another proposal length."""
    return {"speculation": {"numSpeculativeTokens": length}}


class Fleet:
    """One SDD by its name. Inside `traffic` it is under load and watched."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage, self.name = stage, name
        self._load: Load | None = None
        self._witness: Callable[[], Log] = Log

    def apply(self, wanted: Mapping[str, Any]) -> None:
        """Apply a manifest and wait for its first revision."""
        self.stage.apply(wanted)
        self.wait("first rollout", 90, self.settled)

    def edit(self, spec: Mapping[str, Any]) -> None:
        """Merge into its spec."""
        self.stage.kubectl("patch", "sdd", self.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def remove(self) -> None:
        """Delete it and wait until everything of it is gone."""
        self.stage.kubectl("delete", "sdd", self.name, "--ignore-not-found")
        self.stage.wait(f"end of {self.name}", 90, lambda: not self.leftovers())

    # What the operator says: to wait and to tell.

    def status(self) -> dict[str, Any]:
        """Its status, empty before there is one."""
        return dict(self._sdd().get("status", {}))

    def spec(self) -> dict[str, Any]:
        """Its spec, as the API server tells it."""
        return dict(self._sdd()["spec"])

    def settled(self) -> bool:
        """At rest with the newest spec."""
        sdd = self._sdd()
        status = sdd.get("status", {})
        fresh = status.get("observedGeneration") == sdd["metadata"]["generation"]
        return fresh and status.get("reason") in ("Stable", "RetainingOld")

    def line(self) -> str:
        """One line, as `kubectl get sdd` shows it."""
        status = self.status()
        canary = (status.get("canary") or {}).get("revision", "-")
        weight, message = status.get("weight", "-"), status.get("message", "")
        length = status.get("proposalLength", "?")
        return f"  {status.get('reason', '...'):18} canary {canary}  weight {weight}  k {length}  {message}"

    def wait(self, what: str, seconds: float, done: Callable[[], bool]) -> None:
        """Until `done()`, telling every change of `line` meanwhile."""
        self.stage.wait(what, seconds, done, self.line)

    def _sdd(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.stage.kubectl("get", "sdd", self.name, "-o", "json"))
        return found

    # The cluster's objects.

    def revisions(self) -> list[dict[str, Any]]:
        """Its ControllerRevisions, the newest last."""
        return sorted(self.stage.items("controllerrevisions", self.name), key=lambda item: int(item["revision"]))

    def newest(self) -> str:
        """Name of the last revision that was made, empty before the first."""
        return next((str(item["metadata"]["name"]) for item in self.revisions()[::-1]), "")

    def promotions(self) -> dict[str, int]:
        """Promotion number by revision, of those that ever were stable."""
        notes = {item["metadata"]["name"]: item["metadata"].get("annotations", {}) for item in self.revisions()}
        promoted = {name: note.get("specfleet.dev/promoted", "") for name, note in notes.items()}
        return {name: int(text.split()[0]) for name, text in promoted.items() if text}

    def stable(self) -> str:
        """The revision with the highest promotion number, empty before there is one."""
        promotions = self.promotions()
        return max(promotions, key=lambda name: promotions[name], default="")

    def aborted(self, revision: str) -> str:
        """What latched the abort of a revision, empty if nothing did."""
        notes = [item["metadata"].get("annotations", {}) for item in self.revisions() if _name(item) == revision]
        return str(notes[0].get("specfleet.dev/aborted", "")) if notes else ""

    def pods(self, revision: str = "") -> list[dict[str, Any]]:
        """Its pods, or those of one revision."""
        found = self.stage.items("pods", self.name)
        return [pod for pod in found if revision in ("", pod["metadata"]["labels"]["specfleet.dev/revision"])]

    def leftovers(self) -> list[str]:
        """Everything in its namespace that is named like it, or was made for it."""
        listed = json.loads(self.stage.kubectl("get", self._kinds(OWNED), "-o", "json"))["items"]
        named = [f"{item['kind']}/{_name(item)}" for item in listed if _name(item) not in BACKGROUND]
        return [item for item in named if item.partition("/")[2].startswith(self.name)]

    def service(self) -> dict[str, Any]:
        """`Service <name>`."""
        found: dict[str, Any] = json.loads(self.stage.kubectl("get", "service", self.name, "-o", "json"))
        return found

    def versions(self) -> dict[str, str]:
        """What was written when: resourceVersions of its objects and of the events about it, by kind and name."""
        listed = json.loads(self.stage.kubectl("get", self._kinds(f"{WRITTEN},events"), "-o", "json"))["items"]
        named = {f"{item['kind']}/{_name(item)}": str(item["metadata"]["resourceVersion"]) for item in listed}
        return {key: value for key, value in named.items() if key.partition("/")[2].startswith(self.name)}

    def _kinds(self, always: str) -> str:
        return f"{always},{ROUTES}" if self.stage.gateway else always

    def lives(self) -> dict[str, int]:
        """Restarts of each of its pods by uid: as long as this stays equal, nothing began anew."""
        return {pod["metadata"]["uid"]: restarts(pod) for pod in self.pods()}

    # Under load.

    @contextmanager
    def traffic(
        self,
        rate: float = 8,
        mix: str = MIX,
        max_tokens: int = 60,
        stream_share: float = 0.5,
        seconds: float = 600,
        host: str = "",
        headers: Mapping[str, str] | None = None,
        filler: int = 40,
    ) -> Iterator[None]:
        """Constant open load, with `host` through the gateway, and a witness; on a failure what both saw is told."""
        with (
            self.stage.witness(self.name) as witness,
            self.stage.load(self.name, rate, mix, max_tokens, stream_share, seconds, host, headers, filler) as load,
        ):
            self._witness, self._load = witness, load
            self.stage.wait("first answers", 20, lambda: load.started() and load.report.answered > 0)
            try:
                yield
            except BaseException:
                self._explain()
                raise

    @property
    def log(self) -> Log:
        """What the witness has seen so far."""
        return self._witness()

    @property
    def report(self) -> Report:
        """What the load generator has seen so far."""
        assert self._load is not None
        return self._load.report

    def second(self) -> int:
        """Now, as a place in the report's timeline."""
        return int(time.time() - self.report.started)

    def finish(self) -> Report:
        """End the load and return its whole report."""
        assert self._load is not None
        report = self._load.finish()
        if report is None:
            raise HarnessError("the load generator wrote no report")
        return report

    def none_failed(self) -> Report:
        """`finish`, and every request got its whole answer."""
        report = self.finish()
        if report.failed or not report.answered:
            raise AssertionError(f"{report.answered} answers, {report.failures}: {report.failure_examples}")
        self.stage.say(f"{report.answered} answers, none failed")
        return report

    def share(self, revision: str, since: int = 0, until: int | None = None) -> float:
        """Part of the answers of [since, until) seconds that came from a revision's pods, 0 without any answer."""
        return self.report.share(self.seen_pods(revision), since, until) or 0.0

    def seen_pods(self, revision: str) -> set[str]:
        """Names of all pods that a revision ever had."""
        return {name for name, pod in self.log.pods.items() if pod.revision == revision}

    def looks(self, since: int = 0) -> list[Look]:
        """What the cluster offered in second `since` of the timeline, and every change after it."""
        begin = self.report.started + since
        before = [look for look in self.log.looks if look.time < begin]
        return [*before[-1:], *(look for look in self.log.looks if look.time >= begin)]

    def carrying(self, revision: str) -> bool:
        """Clients can reach the revision's pods, and some have."""
        look = self.log.looks[-1]
        return look.share(revision) > 0 and any(self.report.pods.get(pod, 0) for pod in self.seen_pods(revision))

    def revised(self, spec: Mapping[str, Any]) -> str:
        """Edit the spec and wait for the revision that it makes; returns its name."""
        before = self.newest()
        self.edit(spec)
        self.wait("new revision", 30, lambda: self.newest() != before)
        return self.newest()

    def canary(self, spec: Mapping[str, Any], seconds: float = 60) -> str:
        """Edit the spec and wait until users get answers from the new revision; returns its name."""
        name = self.revised(spec)
        self.wait("canary traffic", seconds, lambda: self.carrying(name))
        return name

    def promoted(self, revision: str, seconds: float = 120) -> None:
        """Wait until the revision is stable."""
        self.wait(f"promotion of {revision}", seconds, lambda: self.stable() == revision)
        self.stage.say(f"{revision} is stable")

    def promote(self, revision: str) -> None:
        """The user promotes the canary without waiting for proof."""
        self.edit({"rollout": {"action": {"type": "Promote", "revision": revision, "id": revision}}})
        self.promoted(revision)

    def _explain(self) -> None:
        report = self.report
        self.stage.say(f"answers {report.pods}, failures {report.failures}: {report.failure_examples[:5]}")
        for look in self.looks():
            offer = f"selects {look.selects} {look.serving} {look.routed or ''}"
            self.stage.say(f"  second {look.time - report.started:5.1f}: {offer}")


def restarts(pod: Mapping[str, Any]) -> int:
    """How often the kubelet started its containers again."""
    return sum(item["restartCount"] for item in pod["status"].get("containerStatuses", ()))


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Its readiness probes hold."""
    return any(item["type"] == "Ready" and item["status"] == "True" for item in pod["status"].get("conditions", ()))


def _name(item: Mapping[str, Any]) -> str:
    return str(item["metadata"]["name"])
