"""Lint: every document of every file, one line per problem, its field first."""

import json
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from specfleet.cli.app import app
from specfleet.cli.lint import Line, lint

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
PIN = "0123456789012345678901234567890123456789"


def fleet(**spec):
    """A fleet that there is nothing to say about, but for what is given."""
    whole = {
        "replicas": 12,
        "model": {"source": {"huggingFace": {"repo": "Qwen/Qwen3-8B", "revision": PIN}}},
        "speculation": {"method": "ngram", "numSpeculativeTokens": 3},
        **spec,
    }
    return {
        "apiVersion": "specfleet.dev/v1alpha1",
        "kind": "SpecDecodeDeployment",
        "metadata": {"name": "qwen"},
        "spec": whole,
    }


def found(*documents, strict=False):
    done = lint([("a.yaml", yaml.safe_dump_all(documents))], strict)
    return [str(line) for line in done.lines], done.summary()


def test_a_good_fleet_needs_no_word():
    assert found(fleet()) == ([], "1 SpecDecodeDeployment: nothing to say")


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_have_no_errors_and_their_canaries_can_be_proven(path):
    done = lint([(path.name, path.read_text())])
    assert done.number("error") == 0
    hopeless = [line for line in done.lines if "may ever be proven" in line.says]
    assert bool(hopeless) == (path.stem == "minimal"), "which says so itself"


def test_the_example_of_a_users_route_fits_its_fleet():
    files = [(path.name, path.read_text()) for path in (EXAMPLES / "route.yaml", EXAMPLES / "routes" / "chat.yaml")]
    said = [line.says for line in lint(files).lines if line.severity == "error" or line.says.startswith("spec.traffic")]
    assert said == []
    broken = [files[0], (files[1][0], files[1][1].replace("name: qwen", "name: queen"))]
    assert lint(broken).number("error") == 1


def test_each_kind_of_problem_is_a_line_with_where_its_document_begins_and_its_name():
    wrong = fleet(replicas="four")
    wrong["metadata"]["name"] = "llama"
    advised = fleet(model={"source": {"huggingFace": {"repo": "Qwen/Qwen3-8B"}}}, requestLog={"enabled": True})
    lines, summary = found({"kind": "Service"}, wrong, None, advised)
    assert lines == [
        'a.yaml:3 llama error: spec.replicas: "four": must be a whole number; write it without quotes and fraction',
        "a.yaml:19 qwen finding: spec.model.source.huggingFace.revision is not a full commit hash: weights can change"
        " under a running fleet; pin it",
        "a.yaml:19 qwen not-implemented: spec.requestLog.enabled: accepted, but without effect in this version",
    ]
    assert summary == "2 SpecDecodeDeployments, 1 other object ignored: 1 error, 1 finding, 1 not-implemented"


def test_strict_makes_findings_errors_and_nothing_else():
    advised = fleet(model={"source": {"huggingFace": {"repo": "Qwen/Qwen3-8B"}}}, requestLog={"enabled": True})
    _, summary = found(advised, strict=True)
    assert summary == "1 SpecDecodeDeployment: 1 error, 1 not-implemented"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"speculation": {"method": "ngram", "num_speculative_tokens": 3}},
         "spec.speculation.num_speculative_tokens: is not a field; did you mean numSpeculativeTokens?"),
        ({"bla": 1}, "spec.bla: is not a field; remove it"),
        ({"rollout": {"steps": [{"weight": 5, "minSecond": 3}]}},
         "spec.rollout.steps[0].minSecond: is not a field; did you mean minSeconds?"),
        ({"rollout": {"analysis": {"margin": {}}}},
         "spec.rollout.analysis.margin: is not a field; did you mean margins?"),
    ],
)  # fmt: skip
def test_a_key_that_is_no_field_is_an_error(spec, says):
    assert f"a.yaml:1 qwen error: {says}" in found(fleet(**spec))[0]


def test_free_maps_hold_any_key():
    options = {"method": "ngram", "numSpeculativeTokens": 3, "options": {"prompt_lookup_max": 4}}
    pod = {"nodeSelector": {"any/key": "x"}, "affinity": {"nodeAffinity": {}}}
    assert not [line for line in found(fleet(speculation=options, pod=pod))[0] if "is not a field" in line]


@pytest.mark.parametrize("version", ["specfleet.dev/v1", None, 3])
def test_another_version_is_an_error(version):
    lines, _ = found(fleet() | {"apiVersion": version})
    assert lines == [f"a.yaml:1 qwen error: apiVersion: {version!r}: must be specfleet.dev/v1alpha1; correct it"]


def test_a_kind_or_a_group_that_is_misspelt_is_an_error():
    version = "a.yaml:1 qwen error: apiVersion: 'spefleet.dev/v1alpha1': must be specfleet.dev/v1alpha1; correct it"
    assert found(fleet() | {"apiVersion": "spefleet.dev/v1alpha1"})[0] == [version]
    kind = "a.yaml:1 qwen error: kind: 'SpecDecodeDeploymnet': must be SpecDecodeDeployment; correct it"
    assert found(fleet() | {"kind": "SpecDecodeDeploymnet"})[0] == [kind]


def test_files_without_a_fleet_are_an_error_where_lint_is_strict():
    assert found({"kind": "Service"}) == ([], "0 SpecDecodeDeployments, 1 other object ignored: nothing to say")
    lines, _ = found({"kind": "Service"}, strict=True)
    assert lines == ["error: no SpecDecodeDeployment is in these files: look at their kind and apiVersion"]


def test_a_margin_that_follows_the_pods_is_a_note_and_no_error():
    lines, summary = found(fleet(replicas=4), strict=True)
    (line,) = lines
    assert line.startswith("a.yaml:1 qwen note: spec.rollout.analysis.margins.speedPercent is widened from 5 to 6")
    assert summary == "1 SpecDecodeDeployment: 1 note"


def test_items_of_a_list_are_linted_and_json_is_read():
    whole = {"apiVersion": "v1", "kind": "List", "items": [fleet(), fleet(replicas=-1), {"kind": "Service"}]}
    done = lint([("a.json", json.dumps(whole))])
    assert [line.where for line in done.lines] == ["a.json:1"]
    assert (done.ours, done.others) == (2, 1)


def test_what_is_not_yaml_is_an_error_with_its_line_after_the_good_ones():
    good = yaml.safe_dump(fleet(replicas="x"))
    done = lint([("a.yaml", f"{good}---\nkind: [\n"), ("b.yaml", "kind: a\nkind: b\n")])
    assert [(line.where, line.says[:8]) for line in done.lines] == [
        ("a.yaml:1", "spec.rep"),
        ("a.yaml:17", "not YAML"),
        ("b.yaml:1", "not YAML"),
    ]
    assert "key 'kind' is there twice" in done.lines[2].says
    assert all("\n" not in str(line) for line in done.lines)


def test_a_date_is_a_string_as_it_is_for_the_api_server():
    text = yaml.safe_dump(fleet(restart="DATE")).replace("DATE", "2026-11-30")
    assert lint([("a.yaml", text)]).lines == ()


def test_anchors_and_merge_keys_are_read():
    text = "a: &x {kind: Service}\n---\nb: &y {k: 1}\nc: {<<: *y, <<: *y}\n"
    assert lint([("a.yaml", text)]).number("error") == 0


@given(st.text(max_size=60))
def test_any_text_gives_a_result(text):
    assert lint([("a.yaml", text)]).ours == 0


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@given(json_values, st.sampled_from(["spec", "metadata", "apiVersion"]))
def test_any_part_may_be_anything(value, field):
    assert lint([("a.yaml", yaml.safe_dump(fleet() | {field: value}))]).ours + 1


def run(*arguments, stdin=None):
    return CliRunner().invoke(app, list(arguments), input=stdin)


FLEET = """
apiVersion: specfleet.dev/v1alpha1
kind: SpecDecodeDeployment
metadata: {name: qwen}
spec:
  model: {source: {huggingFace: {repo: Qwen/Qwen3-8B}}}
  speculation: {method: ngram, numSpeculativeTokens: 3}
"""


def test_lint_needs_no_cluster_and_fails_only_on_errors(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECTL", "/nowhere/kubectl")
    good = tmp_path / "good.yaml"
    good.write_text(FLEET)
    done = run("lint", "-f", str(good))
    assert done.exit_code == 0
    assert done.stdout.startswith(f"{good}:2 qwen finding: spec.model.source")
    assert done.stdout.endswith("\n1 SpecDecodeDeployment: 2 findings\n")
    assert run("lint", "-f", str(good), "--strict").exit_code == 1
    both = run("lint", "-f", str(good), "-f", "-", stdin=FLEET.replace("ngram", "magic"))
    assert both.exit_code == 1
    assert '\n-:2 qwen error: spec.speculation.method: "magic": must be ' in both.stdout


def test_a_file_that_cannot_be_read_hides_no_other(tmp_path):
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    (tmp_path / "good.yaml").write_text(FLEET)
    names = [str(tmp_path / name) for name in ("none.yaml", "binary.yaml", "good.yaml")]
    done = run("lint", *(part for name in names for part in ("-f", name)))
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0] == f"{names[0]} error: cannot be read: No such file or directory"
    assert lines[1] == f"{names[1]} error: cannot be read: it is not UTF-8"
    assert lines[2].startswith(f"{names[2]}:2 qwen finding: ")


def test_a_folder_is_linted_with_all_below_it(tmp_path):
    (tmp_path / "teams" / "chat").mkdir(parents=True)
    (tmp_path / "teams" / "chat" / "fleet.yml").write_text(FLEET.replace("ngram", "magic"))
    (tmp_path / "README.md").write_text("no manifest")
    done = run("lint", "-f", str(tmp_path))
    assert done.exit_code == 1
    assert done.stdout.startswith(f"{tmp_path}/teams/chat/fleet.yml:2 qwen error: spec.speculation.method")


# Fleets, routes and Gateways in the same files

PUBLIC = {"name": "public", "namespace": "gateways"}


def routed(name, namespace="chat", **traffic):
    raw = fleet(traffic=traffic)
    return {**raw, "metadata": {"name": name, "namespace": namespace}}


def of_gateway_api(kind, name, namespace, **spec):
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "metadata": meta, "spec": spec}


def by_route(*rules, name="mine", hostnames=("chat.example.com",), parents=(PUBLIC,), namespace="chat"):
    spec = {"parentRefs": [*parents], "hostnames": [*hostnames], "rules": [*rules]}
    return of_gateway_api("HTTPRoute", name, namespace, **spec)


def rule(service="qwen", **more):
    return {"backendRefs": [{"name": service, "port": 8000}], "timeouts": {"request": "0s"}, **more}


def listener(**more):
    return {"name": "https", "port": 443, "protocol": "HTTPS", **more}


def test_a_fleet_that_fits_its_route_and_its_gateway_needs_no_word():
    gateway = of_gateway_api("Gateway", "public", "gateways", listeners=[listener(allowedRoutes=FROM_ALL)])
    mine = routed("qwen", route={"name": "mine"})
    own = routed("llama", gateway=PUBLIC, hostnames=["llama.example.com"])
    assert found(mine, by_route(rule()), own, gateway) == ([], "2 SpecDecodeDeployments: nothing to say")


FROM_ALL = {"namespaces": {"from": "All"}}
TOGETHER = {
    "two fleets with one hostname": [
        routed("qwen", gateway=PUBLIC, hostnames=["a.example.com", "b.example.com"]),
        routed("llama", "other", gateway=PUBLIC, hostnames=["b.example.com"]),
    ],
    "two fleets with one rule": [routed("qwen", route={"name": "mine"}), routed("llama", route={"name": "mine"})],
    "a rule without the fleet": [routed("qwen", route={"name": "mine"}), by_route(rule("painter"))],
    "no such rule": [routed("qwen", route={"name": "mine", "rule": "chat"}), by_route(rule(name="talk"))],
    "several rules": [routed("qwen", route={"name": "mine"}), by_route(rule(), rule("painter"))],
    "sticky sessions": [routed("qwen", route={"name": "mine"}), by_route(rule(sessionPersistence={"type": "Cookie"}))],
    "no time-out": [routed("qwen", route={"name": "mine"}), by_route(rule(name="chat", timeouts=None))],
    "time-outs": [
        routed("qwen", route={"name": "mine"}),
        by_route(rule(timeouts={"request": "1m30s", "backendRequest": "30s"})),
    ],
    "another route of the user with the same matches": [
        routed("qwen", route={"name": "mine"}),
        by_route(rule()),
        by_route({"matches": [{"path": {"value": "/"}}]}, name="other", parents=[{**PUBLIC, "sectionName": "https"}]),
        by_route({"matches": [{"path": {"value": "/docs"}}]}, name="docs"),
        by_route({}, name="elsewhere", parents=[{"name": "private", "namespace": "gateways"}]),
        by_route({}, name="else", hostnames=["else.example.com"]),
    ],
    "another route with the hostname of the operator's": [
        routed("qwen", gateway=PUBLIC, hostnames=["chat.example.com"]),
        by_route({"matches": [{"path": {"value": "/docs"}}]}, name="docs", namespace="web"),
    ],
    "a gateway for its own namespace": [
        routed("qwen", gateway=PUBLIC),
        of_gateway_api("Gateway", "public", "gateways", listeners=[listener()]),
    ],
    "a gateway for another namespace": [
        routed("qwen", route={"name": "mine"}),
        by_route(rule()),
        of_gateway_api(
            "Gateway",
            "public",
            "gateways",
            listeners=[
                listener(
                    allowedRoutes={
                        "namespaces": {
                            "from": "Selector",
                            "selector": {"matchLabels": {"kubernetes.io/metadata.name": "web"}},
                        }
                    }
                )
            ],
        ),
    ],
    "a gateway without the listener": [
        routed("qwen", gateway={**PUBLIC, "sectionName": "tls"}),
        of_gateway_api("Gateway", "public", "gateways", listeners=[listener(allowedRoutes=FROM_ALL)]),
    ],
    "a gateway for other protocols": [
        routed("qwen", gateway=PUBLIC),
        of_gateway_api(
            "Gateway",
            "public",
            "gateways",
            listeners=[
                listener(protocol="TLS", allowedRoutes=FROM_ALL),
                listener(allowedRoutes={**FROM_ALL, "kinds": [{"kind": "GRPCRoute"}]}),
            ],
        ),
    ],
}


def test_what_resources_say_about_each_other_reads_so():
    path = Path(__file__).parent / "golden" / "lint-routes.txt"
    text = "".join(f"{title}\n" + "".join(f"  {line}\n" for line in found(*TOGETHER[title])[0]) for title in TOGETHER)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("selector", [{"matchLabels": {"team": "chat"}}, {"matchExpressions": []}, None])
def test_a_selector_of_labels_that_nobody_knows_says_nothing(selector):
    allowed = {"namespaces": {"from": "Selector", **({"selector": selector} if selector else {})}}
    gateway = of_gateway_api("Gateway", "public", "gateways", listeners=[listener(allowedRoutes=allowed)])
    assert found(routed("qwen", gateway=PUBLIC), gateway)[0] == []


def test_without_a_namespace_in_any_file_all_mean_the_same():
    mine = routed("qwen", route={"name": "mine"})
    del mine["metadata"]["namespace"]
    route = by_route(rule("painter"))
    del route["metadata"]["namespace"]
    assert len(found(mine, route)[0]) == 1


def test_two_versions_of_one_fleet_are_no_rivals():
    both = [routed("qwen", gateway=PUBLIC, hostnames=["a.example.com"])] * 2
    assert found(*both)[0] == []


PLACES = [
    ("metadata",), ("spec",), ("metadata", "name"), ("metadata", "namespace"), ("spec", "rules"), ("spec", "hostnames"),
    ("spec", "parentRefs"), ("spec", "listeners"), ("spec", "rules", 0), ("spec", "rules", 0, "matches"),
    ("spec", "rules", 0, "backendRefs"), ("spec", "rules", 0, "timeouts"), ("spec", "rules", 0, "matches", 0, "path"),
    ("spec", "rules", 0, "backendRefs", 0, "weight"), ("spec", "listeners", 0, "allowedRoutes", "namespaces", "from"),
    ("spec", "listeners", 0, "allowedRoutes", "namespaces"), ("spec", "listeners", 0, "allowedRoutes", "kinds"),
    ("spec", "listeners", 0, "name"), ("spec", "parentRefs", 0, "sectionName"),
]  # fmt: skip


@given(json_values, st.sampled_from(PLACES), st.sampled_from(["HTTPRoute", "Gateway"]))
def test_any_part_of_a_route_or_a_gateway_may_be_anything(value, place, kind):
    whole = by_route(rule(matches=[{"path": {"value": "/"}}]))
    whole["kind"] = kind
    whole["spec"]["listeners"] = [listener(allowedRoutes={"namespaces": {"from": "All"}, "kinds": []})]
    whole = json.loads(json.dumps(whole))
    part = whole
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    fleets = [routed("qwen", route={"name": "mine"}), routed("llama", gateway=PUBLIC, hostnames=["chat.example.com"])]
    assert lint([("a.yaml", yaml.safe_dump_all([*fleets, whole, by_route(rule())]))]).ours == 2


def test_a_name_steers_no_terminal_and_makes_no_line_of_its_own():
    name = "\x1b[2Jqwen\n0 errors\ud800"
    assert str(Line("a.yaml:1", name, "error", "spec.x: is not a field")) == (
        "a.yaml:1 ?[2Jqwen 0 errors? error: spec.x: is not a field"
    )
