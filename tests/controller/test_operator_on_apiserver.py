"""The operator's process against a real API server: rollouts, and what people, pods and crashes do to it meanwhile.

The stories run side by side, as the resources of a cluster do: one operator for all, and one that is killed. What they
assert is seen from outside, as answers by pod, the pods' own counters and the objects; status is mostly waited for.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from deployed import Deployed, Stage
from harness.controlplane import ControlPlane
from harness.manifest import DRAFTER
from operator_process import OperatorProcess
from puppet_nodes import PuppetNode
from specfleet.api import names
from traffic import Traffic

CRD = Path(__file__).parents[2] / "crds" / "specfleet.dev_specdecodedeployments.yaml"
LONGER = {"numSpeculativeTokens": 5}
MOST_MEGABYTES = 200
HEALTHZ_SECONDS = 5.0  # what a liveness probe allows
FAULTS = ("endless", "huge", "slow", "binary", "missing", "redirect", "nan", "negative", "duplicate")
FAULT_SECONDS = 4.0
TROUBLE = re.compile(r"^\S+ (warning|error|critical) ")
DEADLINE = 120.0  # seconds: many times what a story takes

pytestmark = pytest.mark.apiserver
Story = Callable[[Stage, OperatorProcess], None]


def a_longer_proposal_is_promoted(stage: Stage, operator: OperatorProcess) -> None:
    fleet = Deployed(stage, operator, "longer")
    fleet.create(replicas=2)
    before = fleet.until_stable()
    old = fleet.pods()
    flow = fleet.send(rate=6)
    fleet.until("answers of both pods", 20, lambda: all(flow.by({pod}) for pod in old))

    fleet.edit(speculation=LONGER)

    until_both_carry(fleet)
    canary = fleet.pods() - old
    fleet.until("answers of the canary", 20, lambda: flow.by(canary) > 0)
    assert fleet.stable == before, "the canary is no more than that while it takes a share"
    fleet.until("promotion", 90, lambda: fleet.stable not in ("", before))
    after = fleet.stable
    fleet.until("the pointer", 20, lambda: fleet.selected == after)
    flipped = time.monotonic()
    fleet.until_stable()
    new = fleet.pods()
    fleet.until("answers after the flip", 20, lambda: flow.by(new, flipped + 1) >= 10)

    assert flow.failures == []
    assert len(new) == 2
    assert not new & old
    assert flow.by(old, flipped + 1) == 0, "the old pods get nothing more"
    assert {fleet.counters(pod)["positions"] for pod in new} == {5}
    assert {fleet.counters(pod)["positions"] for pod in old} == {3}
    for pod in new | old:
        answers = flow.by({pod})
        assert fleet.counters(pod)["generation_tokens_total"] >= 40 * answers > 0
    written_by_the_user_and_on_status_only(fleet)


def until_both_carry(fleet: Deployed) -> None:
    fleet.until("traffic for both revisions", 40, lambda: fleet.selected is None)


def written_by_the_user_and_on_status_only(fleet: Deployed) -> None:
    meta = fleet.get(names.KIND)["metadata"]
    writers = {(item["manager"], item.get("subresource", "")) for item in meta["managedFields"]}
    assert writers == {("kubectl-create", ""), ("kubectl-patch", ""), (names.FIELD_MANAGER, "status")}
    assert "annotations" not in meta
    assert "finalizers" not in meta


def a_drafter_that_accepts_nothing_is_aborted(stage: Stage, operator: OperatorProcess) -> None:
    fleet = Deployed(stage, operator, "broken")
    fleet.create()
    stable = fleet.until_stable()
    old = fleet.pods()
    flow = fleet.send(rate=3)

    fleet.edit(speculation={"draft": {"source": {"huggingFace": {"repo": "example/accepts-nothing"}}}})

    fleet.until("abort", 60, lambda: any(aborted(fleet).values()))
    (canary,) = (name for name, line in aborted(fleet).items() if line)
    assert aborted(fleet)[canary].startswith("CanaryNotAccepting: ")
    fleet.until("the canary's pods to go", 40, lambda: not fleet.pods(canary) and fleet.get("Deployment", canary) == {})
    (pod,) = (pod for pod in stage.node.known(canary))
    counters = fleet.counters(pod)
    assert counters["spec_decode_num_drafts_total"] >= 200
    assert counters["spec_decode_num_accepted_tokens_total"] == 0
    assert (fleet.stable, fleet.selected) == (stable, stable)
    assert flow.by({pod}) == 0, "no user met it"

    fleet.edit(speculation={"draft": {"source": {"huggingFace": {"repo": DRAFTER}}}})

    assert fleet.until_stable() == stable
    assert list(aborted(fleet).values()) == [""], "the latch is gone, and what it was on"
    assert fleet.pods() == old
    assert flow.failures == []
    assert flow.by(old) == len(flow.answers) > 0


def aborted(fleet: Deployed) -> dict[str, str]:
    """The abort that is latched on each revision, empty where none is."""
    return {
        raw["metadata"]["name"]: raw["metadata"]["annotations"].get(names.ABORTED, "")
        for raw in fleet.items("ControllerRevision")
    }


def someone_elses_service_is_left_alone(stage: Stage, operator: OperatorProcess) -> None:
    fleet = Deployed(stage, operator, "taken")
    spec = {"selector": {"app": "other"}, "ports": [{"name": "http", "port": names.PORT, "targetPort": "http"}]}
    fleet.create_object({"apiVersion": "v1", "kind": "Service", "spec": spec})
    foreign = fleet.get("Service")

    fleet.create()

    fleet.until("NameTaken", 30, lambda: fleet.condition("Ready")[1] == "NameTaken")
    assert fleet.condition("Ready")[0] == "False"
    assert fleet.condition("Stalled") == ("True", "NameTaken")
    assert "Service/taken" in fleet.status["message"]
    stage.stopped.wait(2)  # time to do harm
    assert fleet.get("Service") == foreign

    fleet.kubectl("delete", "service", fleet.name)

    assert fleet.until_stable() == fleet.selected
    assert fleet.get("Service")["metadata"]["uid"] != foreign["metadata"]["uid"]
    assert fleet.condition("Stalled")[0] == "False"


def a_hostile_metrics_page_harms_nobody_else(stage: Stage, operator: OperatorProcess) -> None:
    hostile, neighbour = Deployed(stage, operator, "hostile"), Deployed(stage, operator, "neighbour")
    for fleet in (hostile, neighbour):
        fleet.create()
    stable, before = hostile.until_stable(), neighbour.until_stable()
    flows = [fleet.send(rate=rate) for fleet, rate in ((hostile, 2), (neighbour, 6))]
    (victim,) = hostile.pods()
    stage.node.turn(victim, metrics="endless")
    for fleet in (hostile, neighbour):
        fleet.edit(speculation=LONGER)
    harm: list[str] = []
    begin = time.monotonic()

    def endured() -> bool:
        seconds = time.monotonic() - begin
        fault = FAULTS[min(int(seconds / FAULT_SECONDS), len(FAULTS) - 1)]
        stage.node.turn(victim, metrics=fault)
        harm.extend([] if operator.healthy(HEALTHZ_SECONDS) else [f"unhealthy: {fault}"])
        harm.extend([] if hostile.selected == stable else [f"weight without knowledge: {fault}"])
        return neighbour.stable not in ("", before) and seconds > FAULT_SECONDS * len(FAULTS)

    neighbour.until("promotion beside a hostile page", 90, endured)
    assert harm == []
    assert operator.peak_megabytes < MOST_MEGABYTES
    assert hostile.condition("Reconciling") == ("True", "MetricsUnreachable")
    assert hostile.stable == stable
    assert flows[0].by({victim}) == len(flows[0].answers) > 0

    stage.node.turn(victim, metrics="ok")

    until_both_carry(hostile)
    assert [flow.failures for flow in flows] == [[], []]


def deletion_in_the_middle_leaves_nothing(stage: Stage, operator: OperatorProcess) -> None:
    fleets = {cascade: Deployed(stage, operator, f"deleted-{cascade}") for cascade in ("background", "foreground")}
    for fleet in fleets.values():
        fleet.create()
    for fleet in fleets.values():
        fleet.until_stable()
        fleet.edit(speculation=LONGER)
    for cascade, fleet in fleets.items():
        until_both_carry(fleet)
        assert len(stage.node.known(fleet.name)) == 2
        fleet.kubectl("delete", names.SHORT_NAME, fleet.name, f"--cascade={cascade}", "--wait=false")
    stage.stopped.wait(2)  # a pass that had begun may end
    deleted = len(operator.log)
    for fleet in fleets.values():
        fleet.until("end of everything", 90, fleet.gone)
        key = f" key={fleet.namespace}/{fleet.name} "
        assert [line for line in operator.log[deleted:].splitlines() if key in line and "verb=create" in line] == []
        assert [line for line in operator.log.splitlines() if fleet.name in line and TROUBLE.match(line)] == []


def an_invalid_edit_leaves_the_last_valid_spec_in_force(stage: Stage, operator: OperatorProcess) -> None:
    born = Deployed(stage, operator, "born-invalid")
    born.create(engine={"image": "any", "maxNumSeqs": 64, "args": ["--max-num-seqs=32"]})
    fleet = Deployed(stage, operator, "invalid")
    fleet.create()
    stable = fleet.until_stable()
    flow, pods = fleet.send(rate=2), fleet.pods()
    template = fleet.get("Deployment", stable)["spec"]["template"]

    fleet.edit(engine={"maxNumSeqs": 64, "args": ["--max-num-seqs=32"]}, speculation=LONGER)

    fleet.until("ConfigValid=False", 30, lambda: fleet.condition("ConfigValid") == ("False", "ConfigInvalid"))
    answered = len(flow.answers)
    fleet.until("more answers", 20, lambda: len(flow.answers) >= answered + 10)
    assert fleet.condition("Ready")[0] == "True"
    assert fleet.condition("Stalled") == ("True", "ConfigInvalid")
    assert "spec.engine.args[0]" in next(
        item["message"] for item in fleet.status["conditions"] if item["type"] == "ConfigValid"
    )
    assert list(fleet.revisions.values()) == [stable]
    assert (fleet.selected, fleet.pods()) == (stable, pods)
    assert fleet.get("Deployment", stable)["spec"]["template"] == template

    fleet.edit(engine={"maxNumSeqs": None, "args": None}, speculation={"numSpeculativeTokens": 3})

    fleet.until("ConfigValid=True", 30, lambda: fleet.condition("ConfigValid")[0] == "True")
    assert (fleet.until_stable(), fleet.pods()) == (stable, pods)
    assert flow.failures == []
    assert born.condition("ConfigValid") == ("False", "ConfigInvalid")
    assert born.children() == []


def a_killed_operator_and_a_wiped_status_change_nothing(stage: Stage, operator: OperatorProcess) -> None:
    fleet = Deployed(stage, operator, "crashed")
    fleet.create(replicas=2)
    before = fleet.until_stable()
    flow = fleet.send(rate=6)
    fleet.edit(speculation=LONGER)
    blocks: list[int] = []

    def gathered(enough: int) -> bool:
        count = fleet.blocks or 0
        if fleet.stable == before:  # afterwards it is over, and its evidence with it
            blocks.append(count)
        return blocks[-1] >= enough

    fleet.until("evidence", 60, lambda: gathered(2))

    wipe = '{"status": null}'
    fleet.kubectl("patch", names.SHORT_NAME, fleet.name, "--subresource=status", "--type=merge", "-p", wipe)

    fleet.until("status", 20, lambda: (fleet.status.get("stable") or {}).get("revision") == before)
    fleet.until("evidence after the wipe", 30, lambda: gathered(blocks[-1] + 1))

    operator.kill()
    assert gathered(3)
    known, answered, kept = fleet.revisions, len(flow.answers), blocks[-1]
    fleet.stage.stopped.wait(2)
    assert len(flow.answers) > answered, "pods and Services live on without an operator"
    assert fleet.stable == before
    operator.start()

    fleet.until("more evidence", 60, lambda: gathered(kept + 1))
    assert fleet.revisions == known, "it is the same rollout"
    fleet.until("promotion", 90, lambda: gathered(0) and fleet.stable != before)
    assert blocks == sorted(blocks), "evidence only grows"
    after = fleet.until_stable()
    assert after in known.values()
    assert fleet.selected == after
    assert flow.failures == []

    assert "ended with code 0" in operator.terminate(10)
    lease = json.loads(fleet.kubectl("get", "lease", "specfleet-operator", "-o", "json"))
    assert not lease["spec"].get("holderIdentity"), "the next operator need not wait"


#: By the namespace of the operator that they need; the last one kills and ends its own.
STORIES: Mapping[Story, str] = {
    a_longer_proposal_is_promoted: "operator",
    a_drafter_that_accepts_nothing_is_aborted: "operator",
    someone_elses_service_is_left_alone: "operator",
    a_hostile_metrics_page_harms_nobody_else: "operator",
    deletion_in_the_middle_leaves_nothing: "operator",
    an_invalid_edit_leaves_the_last_valid_spec_in_force: "operator",
    a_killed_operator_and_a_wiped_status_change_nothing: "killed-operator",
}


@pytest.fixture(scope="module")
def told(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Mapping[Story, "Future[None]"]]:
    """All stories that were selected, started at once."""
    folder = tmp_path_factory.mktemp("operator")
    chosen = [item.callspec.params["story"] for item in request.session.items if item.path == request.path]
    control_plane.kubectl("apply", "-f", str(CRD))
    control_plane.kubectl("wait", "--for=condition=Established", "-f", str(CRD), "--timeout=30s")
    with ExitStack() as stack:
        node = stack.enter_context(PuppetNode(control_plane, folder))
        traffic = stack.enter_context(Traffic(node.endpoints))
        stage = Stage(control_plane, node, traffic, threading.Event(), stack.enter_context(ExitStack()))
        operators = {}
        for namespace in sorted({STORIES[story] for story in chosen}):
            make(control_plane, namespace)
            operators[namespace] = stack.enter_context(OperatorProcess(control_plane, namespace, folder))
        pool = stack.enter_context(ThreadPoolExecutor(len(chosen)))
        stack.callback(stage.stopped.set)
        yield {story: pool.submit(story, stage, operators[STORIES[story]]) for story in chosen}
    control_plane.kubectl("delete", "namespace", *operators, "--wait=false")


def make(plane: ControlPlane, namespace: str) -> None:
    """Make a namespace that takes pods."""
    plane.kubectl("create", "namespace", namespace)
    plane.kubectl("wait", "--for=create", "serviceaccount/default", "--namespace", namespace, "--timeout=30s")


@pytest.mark.parametrize("story", STORIES, ids=lambda story: str(story.__name__))
def test_the_operator(story: Story, told: Mapping[Story, "Future[None]"]) -> None:
    told[story].result(DEADLINE)
