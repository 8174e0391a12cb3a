"""What the operator has written down of a rollout, memory and evidence, and whether it can be believed. Pure."""

from dataclasses import dataclass, field

from specfleet.resources.evidence import COMPARISON, EVIDENCE, read_evidence
from specfleet.resources.owned import is_ours
from specfleet.rollout.comparison import Comparison
from specfleet.rollout.memory import Memory
from specfleet.rollout.world import Raw
from specfleet.telemetry.evidence import EMPTY, Evidence, from_json


@dataclass(frozen=True, slots=True)
class Record:
    """The ConfigMap's content; what cannot be read is empty, and `trouble` says why. The evidence is of the rollout on
    its way, else of the last one."""

    memory: Memory = field(default_factory=Memory)
    evidence: Evidence = EMPTY
    comparison: Comparison | None = None
    trouble: str = ""

    @property
    def past(self) -> bool:
        """Whether the evidence is of a rollout that is over."""
        return self.memory.rollout is None


def record(sdd: Raw, configmap: Raw | None, unread: str = "") -> Record:
    """The record of `sdd`; `unread` says why its ConfigMap could not be asked for."""
    if configmap is None:
        return Record(trouble=unread or "there is no record of it: its ConfigMap does not exist")
    if not is_ours(configmap, sdd["metadata"].get("uid", "")):
        return Record(trouble=f"ConfigMap {configmap['metadata']['name']} is not this fleet's")
    return written(configmap)


def written(configmap: Raw) -> Record:
    """What a ConfigMap says, whoever owns it."""
    data = read_evidence(configmap)
    if data is None:
        return Record(trouble="the record's checksum does not hold: the operator begins a new one")
    memory = Memory.from_json(data.get("memory", ""))
    comparison = Comparison.from_json(data.get(COMPARISON, ""))
    if EVIDENCE not in data:
        return Record(memory, comparison=comparison)
    try:
        return Record(memory, from_json(data[EVIDENCE]), comparison)
    except ValueError as error:
        return Record(memory, trouble=f"the evidence cannot be read ({error}): is this plugin older than the operator?")
