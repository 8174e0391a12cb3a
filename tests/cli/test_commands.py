"""The commands, from the command line to the arguments that a fake kubectl records."""

import json
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specfleet import __version__
from specfleet.api import names
from specfleet.cli import app as commands
from specfleet.cli.app import app
from specfleet.judgement.judge import Policy
from specfleet.resources.evidence import evidence_map
from specfleet.rollout.comparison import Comparison
from specfleet.rollout.memory import Memory, Rollout
from specfleet.rollout.revision import identity
from specfleet.telemetry.counters import Tally
from specfleet.telemetry.evidence import EMPTY, Block

SDD = "specdecodedeployments.specfleet.dev"
OWNED = "pods,deployments.apps,controllerrevisions.apps"


class FakeKubectl:
    """Answers by the verb and kind that it is asked for, and keeps a line of JSON for each call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "kubectl"
        self.program.write_text(f"#!{sys.executable}\n{_FAKE}")
        self.program.chmod(0o755)

    def answers(self, verb: str, kind: str, out: Any = None, error: str = "", name: str = "") -> None:
        """`out` as JSON on stdout; with `error`, that on stderr and exit status 1."""
        answer = {"out": "" if out is None else json.dumps(out), "error": error}
        (self.folder / f"{verb}-{kind}-{name}.json").write_text(json.dumps(answer))

    def holds(self, *objects: dict[str, Any], owned: list[dict[str, Any]] | None = None) -> None:
        """SDDs of the namespace, and what carries their label."""
        self.answers("get", SDD, {"items": list(objects)})
        self.answers("get", OWNED, {"items": owned or []})
        for item in objects:
            name = item["metadata"]["name"]
            self.answers("get", SDD, item, name=name)
            self.answers("patch", SDD, {}, name=name)

    @property
    def calls(self) -> list[list[str]]:
        log = self.folder / "calls"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    @property
    def patches(self) -> list[Any]:
        return [json.loads(call[call.index("-p") + 1]) for call in self.calls if "patch" in call]


_FAKE = """
import json, pathlib, sys
here = pathlib.Path(__file__).parent
with open(here / "calls", "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
words = [word for word in sys.argv[1:] if not word.startswith("--")]
verb, kind, name = words[0], words[1], words[2] if len(words) > 2 and not words[2].startswith("-") else ""
path = here / f"{verb}-{kind}-{name}.json"
if not path.exists():
    sys.exit(f'Error from server (NotFound): {kind} "{name}" not found')
answer = json.loads(path.read_text())
print(answer["out"])
print(answer["error"], file=sys.stderr)
sys.exit(1 if answer["error"] else 0)
"""


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKubectl:
    fake = FakeKubectl(tmp_path)
    monkeypatch.setenv("KUBECTL", str(fake.program))
    monkeypatch.setenv("COLUMNS", "120")
    return fake


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_status_reads_with_the_users_context_and_shows_the_tree(kubectl, scene, run):
    resource, owned = scene("canary")
    kubectl.holds(resource, owned=owned)
    done = run("status", "llama", "-n", "chat", "--context", "prod", "--kubeconfig", "/tmp/config")
    assert done.exit_code == 0, done.output
    assert "llama-9d2zx4kv  canary 25%" in done.output
    assert "mi300x-c" in done.output
    for call in kubectl.calls:
        assert call[:3] == ["--namespace=chat", "--context=prod", "--kubeconfig=/tmp/config"]
    assert kubectl.calls[1][-3:] == ["specfleet.dev/deployment=llama", "-o", "json"]


def test_status_without_a_name_lists_all(kubectl, scene, run):
    kubectl.holds(scene("at-rest")[0])
    done = run("status")
    assert done.output.split()[:3] == ["NAME", "READY", "REASON"]
    assert "llama-6b7f9c42" in done.output


def test_status_of_an_empty_namespace_says_so(kubectl, run):
    kubectl.holds()
    done = run("status", "-n", "chat")
    assert (done.exit_code, done.output) == (0, "no SpecDecodeDeployment in chat\n")


def test_status_shows_what_may_be_read(kubectl, scene, run):
    resource, owned = scene("canary")
    kubectl.holds(resource)
    refused = 'Error from server (Forbidden): controllerrevisions.apps is forbidden: User "jo" cannot list'
    kubectl.answers("get", OWNED, {"items": [item for item in owned if item["kind"] == "Pod"]}, error=refused)
    done = run("status", "llama")
    assert done.exit_code == 0
    assert "not everything could be read: Error from server (Forbidden)" in done.output
    assert "llama-9d2zx4kv-7d9f8b6c4-hj8dm" in done.output


@pytest.mark.parametrize("verb", ["promote", "abort"])
def test_an_action_is_patched_with_a_new_id(verb, kubectl, scene, run):
    kubectl.holds(scene("canary")[0])
    assert run(verb, "llama").exit_code == 0
    action = kubectl.patches[0]["spec"]["rollout"]["action"]
    assert (action["type"], action["revision"]) == (verb.title(), "llama-9d2zx4kv")
    assert uuid.UUID(action["id"])
    assert kubectl.calls[-1][1:5] == ["patch", SDD, "llama", "--type=merge"]


def test_what_is_refused_is_one_line_and_no_patch(kubectl, scene, run):
    kubectl.holds(scene("at-rest")[0])
    done = run("promote", "llama")
    assert done.exit_code == 1
    assert done.stderr == ("error: llama has no canary to promote: it is Stable (llama-6b7f9c42 serves with 2 pods)\n")
    assert kubectl.patches == []


def test_pause_is_patched_and_a_second_one_is_not(kubectl, scene, run):
    resource, _ = scene("canary")
    kubectl.holds(resource)
    assert run("pause", "llama").exit_code == 0
    assert kubectl.patches == [{"spec": {"paused": True}}]
    kubectl.holds({**resource, "spec": {"paused": True}})
    again = run("pause", "llama")
    assert (again.exit_code, again.output) == (0, "llama is paused already; nothing was written\n")
    assert run("resume", "llama").exit_code == 0
    assert kubectl.patches[1:] == [{"spec": {"paused": False}}]


def test_a_patch_that_the_server_refuses_is_an_error(kubectl, scene, run):
    kubectl.holds(scene("canary")[0])
    kubectl.answers("patch", SDD, error='Error from server (Forbidden): User "jo" cannot patch', name="llama")
    done = run("abort", "llama")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == 'error: Error from server (Forbidden): User "jo" cannot patch\n'


def test_an_unknown_name_brings_near_ones(kubectl, scene, run):
    kubectl.holds(scene("canary")[0])
    done = run("status", "lama", "-n", "chat")
    assert done.stderr == "error: no SpecDecodeDeployment lama in namespace chat; did you mean llama?\n"
    assert run("status", "qwen").stderr == ("error: no SpecDecodeDeployment qwen in this namespace; there is llama\n")
    kubectl.holds()
    assert "nor any other; is -n right?" in run("status", "qwen").stderr


def test_a_missing_crd_is_named(kubectl, run):
    kubectl.answers("get", SDD, error='error: the server doesn\'t have a resource type "specdecodedeployments"')
    done = run("status")
    assert done.exit_code == 1
    assert done.stderr.startswith(f"error: {SDD} is not known to this cluster: install specfleet's CRD")


def test_a_missing_kubectl_is_named(monkeypatch, run):
    monkeypatch.setenv("KUBECTL", "/nowhere/kubectl")
    done = run("status")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "/nowhere/kubectl not found" in done.stderr


def test_log_lines_of_kubectl_are_left_out(kubectl, run):
    noise = 'E0805 12:00:00.1 memcache.go:265] "Unhandled Error"\n'
    kubectl.answers("get", SDD, error=f"{noise}The connection to the server x:6443 was refused")
    assert run("status").stderr == "error: The connection to the server x:6443 was refused\n"


def test_explain_reads_the_evidence_too(kubectl, scene, run):
    resource, owned = scene("canary")
    kubectl.holds(resource, owned=owned)
    memory = Memory(Rollout("llama-9d2zx4kv", ("uid-s", "uid-c"), reached=1.0))
    kubectl.answers("get", "configmaps", evidence_map(resource, {"memory": memory.to_json()}), name="llama-evidence")
    resource["spec"] = {"model": {"source": {"huggingFace": {"repo": "a/b"}}}, "speculation": {"method": "none"}}
    kubectl.holds(resource, owned=owned)
    done = run("explain", "llama", "-n", "chat")
    assert done.exit_code == 0, done.output
    assert "llama-9d2zx4kv has 25%: step 1 of 3, asked 5%, reachable 25% (1 of 4 pods)" in done.output
    assert kubectl.calls[2][2:] == ["get", "configmaps", "llama-evidence", "-o", "json", "--ignore-not-found"]


def test_replay_judges_what_a_fleet_has_recorded(kubectl, scene, run):
    resource, owned = scene("at-rest")
    busy = Tally(
        decode_outputs=6000,
        decode_seconds=560,
        first_tokens=60,
        iterations=750,
        finished=60,
        http_requests=60,
        seconds=60,
    )
    found, policy = EMPTY, Policy(speed_percent=15, acceptance_points=5, error_points=2, max_blocks=120)
    for _ in range(40):
        found = found.add(Block({f"s{index}": busy for index in range(4)}, {f"c{index}": busy for index in range(4)}))
    about = Comparison(("a", "b"), "llama-4c8w7bqd", "llama-6b7f9c42", False, policy, 60)
    kubectl.holds(resource, owned=owned)
    data = {"memory": Memory().to_json(), "evidence": found.to_json(), "compared": about.to_json()}
    kubectl.answers("get", "configmaps", evidence_map(resource, data), name="llama-evidence")
    done = run("replay", "llama", "-n", "chat")
    assert done.exit_code == 0, done.output
    assert "llama-6b7f9c42 minus llama-4c8w7bqd" in done.output
    assert "✔ proven" in done.output


def test_replay_of_a_fleet_without_evidence_says_why(kubectl, scene, run):
    resource, owned = scene("at-rest")
    resource["spec"] = {}
    kubectl.holds(resource, owned=owned)
    kubectl.answers("get", "configmaps", evidence_map(resource, {"memory": Memory().to_json()}), name="llama-evidence")
    done = run("replay", "llama")
    assert done.exit_code == 1
    assert "there is no evidence of llama: no canary has been compared yet" in done.stderr


def test_explain_goes_on_where_the_evidence_may_not_be_read(kubectl, scene, run):
    resource, owned = scene("canary")
    kubectl.holds(resource, owned=owned)
    kubectl.answers(
        "get", "configmaps", error="Error from server (Forbidden): configmaps is forbidden", name="llama-evidence"
    )
    done = run("explain", "llama")
    assert done.exit_code == 0, done.output
    assert "configmaps is forbidden" in done.output
    assert "+24.1 % [+18.0, +30.2]" in done.output


def test_retry_is_patched_for_the_aborted_revision(kubectl, scene, run):
    resource, owned = scene("aborted")
    for item in owned:
        if item["metadata"]["name"] == "llama-9d2zx4kv":
            item["metadata"].setdefault("annotations", {})[names.IDENTITY] = identity({})
    kubectl.holds(resource, owned=owned)
    done = run("retry", "llama")
    assert done.exit_code == 0, done.output
    action = kubectl.patches[0]["spec"]["rollout"]["action"]
    assert (action["type"], action["revision"]) == ("Retry", "llama-9d2zx4kv")


def test_undo_is_patched_for_stable_or_refused(kubectl, scene, run):
    resource, owned = scene("at-rest")
    kubectl.holds(resource, owned=owned)
    assert run("undo", "llama").exit_code == 0
    assert kubectl.patches[0]["spec"]["rollout"]["action"]["revision"] == "llama-6b7f9c42"
    kubectl.holds(resource, owned=[item for item in owned if "4c8w7bqd" not in item["metadata"]["name"]])
    done = run("undo", "llama")
    assert (done.exit_code, done.stderr.startswith("error: UndoUnavailable: ")) == (1, True)
    assert len(kubectl.patches) == 1


def settled(resource, *, reconciling="False", **status):
    """`resource` with a status of its newest generation."""
    moving = {**resource["status"]["conditions"][0], "type": "Reconciling", "status": reconciling}
    said = [*resource["status"]["conditions"], moving]
    return {**resource, "status": {**resource["status"], "conditions": said, **status}}


def test_status_with_a_timeout_shows_the_settled_fleet(kubectl, scene, run):
    resource, owned = scene("at-rest")
    kubectl.holds(settled(resource), owned=owned)
    done = run("status", "llama", "--timeout", "10m")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "llama  Ready  Stable" in done.stdout


@pytest.mark.parametrize("watching", [(), ("--watch",)])
def test_status_of_a_stalled_fleet_fails_with_the_reason(watching, kubectl, scene, run):
    resource, owned = scene("aborted")
    for item in resource["status"]["conditions"]:
        item |= {"reason": "CanaryAborted", "message": "CanaryRegressed: speed -21.4 %"}
    kubectl.holds(settled(resource), owned=owned)
    done = run("status", "llama", "--timeout", "1h", *watching)
    assert done.exit_code == 1
    assert done.stderr == "error: llama is stalled: CanaryAborted: CanaryRegressed: speed -21.4 %\n"
    assert "llama-9d2zx4kv  aborted" in done.stdout


@pytest.mark.parametrize("watching", [(), ("--watch",)])
def test_status_gives_up_with_what_it_waits_for(watching, kubectl, scene, run):
    resource, owned = scene("canary")
    kubectl.holds(settled(resource, reconciling="True", message="31 s more at 5%"), owned=owned)
    done = run("status", "llama", "--timeout", "0s", *watching)
    assert done.exit_code == 3
    assert done.stderr == "error: llama has not settled in time; it waits for CanaryAnalysing: 31 s more at 5%\n"


def test_leaving_a_wait_is_not_success(kubectl, scene, run, monkeypatch):
    def leave(seconds):
        raise KeyboardInterrupt

    kubectl.holds(settled(scene("canary")[0], reconciling="True"))
    monkeypatch.setattr(commands.time, "sleep", leave)
    assert run("status", "llama", "--timeout", "1h").exit_code == 130
    assert run("status", "llama", "--timeout", "1h", "-w").exit_code == 130


@pytest.mark.parametrize(("arguments", "says"), [(("--timeout", "1m"), "NAME"), (("llama", "--timeout", "10"), "90s")])
def test_a_timeout_without_a_name_or_unit_is_wrong_usage(arguments, says, kubectl, run):
    done = run("status", *arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert kubectl.calls == []


def test_version_names_package_and_api(run):
    assert run("version").output == f"kubectl-specfleet {__version__} (specfleet.dev/v1alpha1)\n"
