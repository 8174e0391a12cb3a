"""`replay`: where it takes its evidence from, what it shows of it, how it ends, and what it says of bad input."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fake_vllm import Behaviour, Server
from specfleet.cli import again
from specfleet.cli.app import app
from specfleet.cli.pages import BadInput, read, recorded, ticks
from specfleet.cli.replayed import PROVEN, REGRESSED, UNDECIDED, shown
from specfleet.judgement.judge import Policy, judge
from specfleet.resources.evidence import evidence_map
from specfleet.rollout.comparison import Comparison
from specfleet.rollout.memory import Memory
from specfleet.telemetry.collector import Collector
from specfleet.telemetry.counters import Observation
from specfleet.telemetry.evidence import EMPTY, Arm
from specfleet.telemetry.page import MAX_PAGE, parse

POLICY = Policy(speed_percent=5, acceptance_points=5, error_points=1, max_blocks=120)
GOOD = Behaviour()
SLOW = replace(GOOD, pace=1.4)
START = 1_790_000_000


def record_pages(folder: Path, canary: Behaviour, minutes: int = 14, every: int = 15) -> Path:
    """Three pods of stable and three canaries, read every 15 s; the time of a tick names its folder."""
    pods = {
        f"{arm}-{index}": (arm, Server(f"{arm}-{index}", 3, 1.0)) for arm in ("stable", "canary") for index in range(3)
    }
    for now in range(START, START + 60 * minutes, every):
        for name, (arm, server) in pods.items():
            how = canary if arm == "canary" else GOOD
            server.serve(how, 4.0, now - every, every)
            path = folder / str(now) / arm
            path.mkdir(parents=True, exist_ok=True)
            (path / f"{name}.prom").write_bytes(server.page(how, now))
    return folder


def evidence_of(folder: Path):
    """What the operator's parts make of the same pages."""
    collector, evidence = Collector(60, 60), EMPTY
    for path in sorted(folder.iterdir(), key=lambda path: float(path.name)):
        arms = {
            Arm(arm.name): {page.stem: Observation((page.stem, 0), parse(page.read_bytes())) for page in arm.iterdir()}
            for arm in path.iterdir()
        }
        if block := collector.tick(float(path.name), arms):
            evidence = evidence.add(block)
    return evidence


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return record_pages(tmp_path_factory.mktemp("good"), GOOD)


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    return record_pages(tmp_path_factory.mktemp("slow"), SLOW)


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    return lambda *arguments: CliRunner().invoke(app, ["replay", *map(str, arguments)])


def about(policy=POLICY, **dropped):
    return Comparison(("a", "b"), "llama-6b7f9c42", "llama-9d2zx4kv", True, policy, 60, dropped)


def configmap(evidence, compared=None, memory=None):
    owner = {"metadata": {"name": "llama", "namespace": "chat", "uid": "uid-llama"}}
    data = {"memory": (memory or Memory()).to_json(), "evidence": evidence.to_json()}
    return evidence_map(owner, data | ({"compared": compared.to_json()} if compared else {}))


def test_pages_go_through_the_operators_own_parts_and_every_block_is_a_look(good):
    found = recorded(good, 60, True, POLICY)
    evidence = evidence_of(good)
    assert found.evidence == evidence
    assert [look.blocks for look in found.looks] == list(range(1, len(evidence.blocks) + 1))
    assert len(evidence.blocks) > 8
    assert found.looks[-1].verdict == judge(evidence, True, POLICY)
    assert found.dropped["warm-up"] > 0


def test_the_exit_status_says_what_became_of_the_canary(good, slow, run, tmp_path):
    done = run("--pages", good)
    assert (done.exit_code, "✔ proven" in done.output) == (PROVEN, True), done.output
    done = run("--pages", slow)
    assert (done.exit_code, "✖ Regression at block 8: speed" in done.output) == (REGRESSED, True), done.output
    done = run("--pages", good, "--margin", "speed=0", "--margin", "errors=0")
    assert (done.exit_code, "◌ not decided" in done.output) == (UNDECIDED, True), done.output
    done = run("--pages", record_pages(tmp_path, GOOD, minutes=1))
    assert (done.exit_code, "no block of evidence" in done.output) == (UNDECIDED, True), done.output


def test_every_look_has_a_line(good, run):
    blocks = len(evidence_of(good).blocks)
    lines = run("--pages", good).output.splitlines()
    numbers = [int(line.split()[0]) for line in lines if line.split()[:1] and line.split()[0].isdigit()]
    assert numbers == list(range(1, blocks + 1))


@pytest.mark.parametrize(("width", "encoding"), [(120, "utf-8"), (80, "ascii")])
def test_a_replay_is_as_recorded(width, encoding, slow, text, golden):
    content = json.dumps(configmap(evidence_of(slow), about(**{"warm-up": 24, "missed": 2}))).encode()
    written = text(shown(again.of_file("evidence.yaml", content, [])), width, encoding)
    golden(f"replay-{width}", written)


def test_columns_that_do_not_fit_go_below(slow, text):
    content = json.dumps(configmap(evidence_of(slow), about())).encode()
    heads = [line for line in text(shown(again.of_file("x", content, [])), 60).splitlines() if "block  " in line]
    assert heads == ["  block  speed, %                acceptance, points", "  block  errors, points"]


def test_a_configmap_in_a_file_is_judged_as_the_rollout_was(good, run, tmp_path):
    strict = replace(POLICY, speed_percent=0.5)
    file = tmp_path / "evidence.json"
    file.write_text(json.dumps(configmap(evidence_of(good), about(strict))))
    done = run("-f", file)
    assert done.exit_code == UNDECIDED
    assert "margin 0.5 %" in done.output
    assert "llama-9d2zx4kv minus llama-6b7f9c42" in done.output
    assert run("-f", file, "--margin", "speed=5").exit_code == PROVEN


def test_a_configmap_of_an_older_operator_is_judged_by_the_default_margins(good, run, tmp_path):
    file = tmp_path / "evidence.json"
    file.write_text(json.dumps(configmap(evidence_of(good))))
    assert run("-f", file).exit_code == PROVEN


def test_arms_that_draft_differently_are_not_compared_in_acceptance(good, run):
    assert "NotComparable" in run("--pages", good, "--draft-differently").output


def told(done) -> str:
    assert done.exit_code == 1, done.output
    assert done.stderr.count("\n") == 1
    return done.stderr.removeprefix("error: ").strip()


SPOILED = {
    "a page with a bad number": (
        "vllm:num_requests_running x\n",
        ", line 2: vllm:num_requests_running: 'x' is not a number",
    ),
    "a page of something else": ("<html>\n", ": no vLLM metrics on the page"),
    "an empty page": ("", ": no vLLM metrics on the page"),
}


@pytest.mark.parametrize("what", SPOILED)
def test_a_page_that_cannot_be_trusted_is_named_with_its_line_and_what_to_do(what, run, tmp_path):
    content, said = SPOILED[what]
    page = record_pages(tmp_path, GOOD, minutes=1) / str(START + 15) / "canary" / "canary-1.prom"
    page.write_text("# HELP a line\n" + content if content.startswith("vllm") else content)
    assert told(run("--pages", tmp_path)).startswith(f"{page}{said}")
    assert told(run("--pages", tmp_path)).endswith("delete the file, and that scrape counts as one that failed")
    page.unlink()
    assert run("--pages", tmp_path).exit_code == UNDECIDED


def test_a_page_is_bounded_as_in_the_operator(tmp_path):
    page = tmp_path / "huge.prom"
    page.write_bytes(b"#" * (MAX_PAGE + 1))
    with pytest.raises(BadInput, match="larger than 4 MiB"):
        read(page)


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        ([], "holds no pages"),
        (["10/stable/readme.txt"], "holds no pages"),
        (["noon/stable/a.prom"], "noon is not named by a time in seconds"),
        (["nan/stable/a.prom"], "nan is not named by a time in seconds"),
        (["10/prod/a.prom"], "prod: an arm is called stable or canary"),
        (["10/stable/a.prom", "10.0/stable/a.prom"], "two folders for the time 10"),
    ],
)
def test_another_layout_is_told_with_the_right_one(paths, said, run, tmp_path):
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"")
    assert said in told(run("--pages", tmp_path))


def test_ticks_are_ordered_by_their_times_and_not_by_their_names(tmp_path):
    for name in ("9", "10", "9.5", ".git"):
        (tmp_path / name / "stable").mkdir(parents=True)
        (tmp_path / name / "stable" / "a.prom").write_bytes(b"")
    assert [tick.time for tick in ticks(tmp_path)] == [9, 9.5, 10]


def test_bad_files_and_margins_get_one_line(good, run, tmp_path):
    file = tmp_path / "evidence.yaml"
    assert told(run("-f", tmp_path / "none")).endswith("none cannot be read: No such file or directory")
    for content, said in (
        ("a: [", "evidence.yaml, line 1: not YAML or JSON"),
        ("kind: Pod", "is no ConfigMap: give what `kubectl get configmap <name>-evidence -o yaml` writes"),
        ("kind: ConfigMap", "has no data"),
        ("kind: ConfigMap\ndata: {evidence: x}", "checksum does not hold"),
        (json.dumps(configmap(EMPTY)), "holds no evidence"),
    ):
        file.write_text(content)
        assert said in told(run("-f", file))
    assert "--margin sped=3: give it as NAME=NUMBER" in told(run("--pages", good, "--margin", "sped=3"))
    assert "a margin is a number from 0" in told(run("--pages", good, "--margin", "speed=nan"))
    assert "a margin is a number from 0" in told(run("--pages", good, "--margin", "speed=-1"))
    assert "a margin is a number from 0 to 1000" in told(run("--pages", good, "--margin", "speed=1e308"))


def test_an_edited_record_is_refused(good, run, tmp_path):
    edited = configmap(evidence_of(good), about())
    edited["data"]["evidence"] = edited["data"]["evidence"].replace("60", "61")
    (tmp_path / "evidence.json").write_text(json.dumps(edited))
    assert "checksum does not hold" in told(run("-f", tmp_path / "evidence.json"))


def test_exactly_one_source_is_asked_for(good, run):
    for arguments in ([], ["llama", "--pages", good]):
        done = run(*arguments)
        assert done.exit_code == 2
        assert "give one of NAME, --filename and --pages" in " ".join(done.output.replace("│", " ").split())


@pytest.mark.parametrize("data", ["{a: 2024-01-01}", "{1: a, b: c}", "{a: !!binary aGk=}", "{a: [b]}"])
def test_what_no_api_server_would_hold_is_no_record(run, tmp_path, data):
    (tmp_path / "evidence.yaml").write_text(f"kind: ConfigMap\ndata: {data}")
    assert "checksum does not hold" in told(run("-f", tmp_path / "evidence.yaml"))


def test_only_files_are_read(run, tmp_path):
    (tmp_path / "1" / "stable").mkdir(parents=True)
    os.mkfifo(tmp_path / "1" / "stable" / "a.prom")
    assert "a.prom is no file" in told(run("--pages", tmp_path))


@pytest.mark.parametrize("forged", [{"speed_percent": 1e308, "alpha": 2}, {"alpha": 0.5}])
def test_a_record_by_margins_of_another_kind_is_judged_by_the_defaults(good, run, tmp_path, forged):
    policy = {**json.loads(about().to_json())["policy"], **forged}
    record = configmap(evidence_of(good))
    kept = {key: text for key, text in record["data"].items() if key != "checksum"}
    kept["compared"] = json.dumps({**json.loads(about().to_json()), "policy": policy})
    owner = {"metadata": {"name": "llama", "namespace": "chat", "uid": "uid-llama"}}
    (tmp_path / "evidence.json").write_text(json.dumps(evidence_map(owner, kept)))
    done = run("-f", tmp_path / "evidence.json")
    assert (done.exit_code, "against a margin of 5" in done.output or "proven" in done.output) == (PROVEN, True)


def test_what_would_steer_a_terminal_is_not_shown(run, tmp_path):
    (tmp_path / "\x1b[2J\udcff").mkdir()
    assert "??[2J" not in told(run("--pages", tmp_path))
    assert "?[2J? is not named by a time" in told(run("--pages", tmp_path))
