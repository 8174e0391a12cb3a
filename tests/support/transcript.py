"""Writes down what happens to a fleet so that it reads as a story: one line per write, decision and change of what is
waited for, each with its reason and a picture of the fleet."""

from collections.abc import Callable
from dataclasses import dataclass, field

from fake_fleet import FakeFleet
from fake_kube import FakeKube
from specfleet.api import names
from specfleet.controller.cache import Key
from specfleet.controller.recorder import Recorder
from specfleet.plan import Event, Verb, Write
from specfleet.rollout.world import Objects, Raw, Revision, revisions


@dataclass(slots=True)
class Transcript:
    """Lines such as `t=   28 s  [v1 4/4 80%, v2 1/1 20%]  apply  Service qwen: Service qwen selects every revision`.

    The picture has for each revision its serving pods, the pods wanted, and its share of new requests.
    """

    key: Key
    fleet: FakeFleet
    began: float
    lines: list[str] = field(default_factory=list)
    _held: str = ""
    _aliases: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fleet.kube.written.append(self.write)

    def line(self, verb: str, what: str) -> None:
        """One line, with revisions called v1, v2, ... by their numbers."""
        found = revisions_of(self.fleet.kube)
        self._aliases |= {item.name: f"v{item.number}" for item in found}
        picture = ", ".join(self._picture(item) for item in found if item.alive)
        for name, alias in self._aliases.items():
            what = what.replace(name, alias)
        seconds = self.fleet.clock.now - self.began
        self.lines.append(f"t={seconds:5.0f} s  [{picture}]".ljust(46) + f"{verb:7} {what}")

    def write(self, write: Write) -> None:
        """A write was done; those of memory and evidence, after every block, are left out."""
        if write.kind != "ConfigMap" or write.verb is not Verb.APPLY:
            self.line(write.verb.value, f"{write.kind} {write.name}: {write.why}")

    def hold(self) -> None:
        """What is waited for now, if that is something else than before."""
        sdd = self.fleet.kube.find(names.KIND, self.key.namespace, self.key.name)
        status = (sdd.get("status") or {}) if sdd else {}
        if status.get("reason", "") != self._held:
            self._held = status.get("reason", "")
            self.line("holds", f"{self._held}: {status.get('message', '')}")

    def _picture(self, revision: Revision) -> str:
        share = self.fleet.shares().get(revision.name)
        return f"v{revision.number} {revision.ready}/{revision.wanted}" + (f" {share}%" if share else "")


class Telling(Recorder):
    """Writes events, and tells the story of them."""

    line: Callable[[str, str], None]

    async def record(self, sdd: Raw, event: Event) -> None:
        self.line("event", f"{event.reason}: {event.message}")
        await super().record(sdd, event)


def revisions_of(kube: FakeKube) -> list[Revision]:
    """Every revision in the cluster, the oldest first."""
    kinds = ("ControllerRevision", "Deployment", "Pod")
    records, deployments, pods = ({raw["metadata"]["name"]: raw for raw in kube.all(kind)} for kind in kinds)
    found = revisions(Objects(records, deployments, pods=list(pods.values())))
    return sorted(found.values(), key=lambda item: item.number)
