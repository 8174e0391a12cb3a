"""What is said of a route in status.findings, which changes nothing else."""

from fake_gateway import backend, user_route

OWN = {"gateway": {"name": "public", "namespace": "gateways"}, "hostnames": ["qwen.example.com"]}
LISTENER = {"name": "https", "port": 443, "protocol": "HTTPS"}
EVERYBODY = {"allowedRoutes": {"namespaces": {"from": "All"}}}


def told(story):
    return [text for text in story.status.get("findings", ()) if text.startswith("spec.traffic")]


def advised(story):
    """What the condition says, empty where there is none."""
    return next((item["message"] for item in story.status["conditions"] if item["type"] == "HasFindings"), "")


def gateway(story, **listener):
    live = story.kube.find("Gateway", "gateways", "public")
    story.kube.put({**live, "spec": {**live["spec"], "listeners": [{**LISTENER, **listener}]}})


async def test_a_users_rule_that_cuts_answers_is_told_until_it_does_not(at_rest):
    rule = {"backendRefs": [backend("qwen")]}
    spec = {"traffic": {"route": {"name": "mine"}}}
    story = await at_rest(route="mine", before=[user_route("mine", [rule])], spec=spec)
    assert [text.split(";")[1] for text in told(story)] == [" set it to 0s"]
    assert told(story)[0] in advised(story)
    assert story.reason == "Stable"
    live = story.kube.find("HTTPRoute", "chat", "mine")
    rules = [{**live["spec"]["rules"][0], "timeouts": {"request": "0s"}}]
    story.kube.managed({**live, "spec": {**live["spec"], "rules": rules}}, "kubectl")
    await story.run(60)
    assert told(story) == []
    assert "spec.traffic" not in advised(story)


async def test_another_route_with_our_hostname_and_a_listener_that_is_closed_to_us_are_told(at_rest):
    story = await at_rest(route="qwen", spec={"traffic": OWN})
    assert told(story) == []
    gateway(story)
    docs = user_route("docs", [{"backendRefs": [backend("docs")]}])
    story.kube.put({**docs, "spec": {**docs["spec"], "hostnames": OWN["hostnames"]}})
    await story.run(90)
    assert told(story) == [
        "spec.traffic.hostnames: HTTPRoute chat/docs of the same Gateway has qwen.example.com too: what it matches does"
        " not come here; change one of them",
        "spec.traffic.gateway: no listener of Gateway gateways/public admits HTTPRoutes of namespace chat; change its"
        " allowedRoutes",
    ]
    assert story.reason == "Stable"
    gateway(story, **EVERYBODY)
    story.kube.remove("HTTPRoute", "chat", "docs")
    await story.run(90)
    assert told(story) == []


async def test_a_fleet_about_which_there_is_nothing_to_say_has_no_such_condition(at_rest):
    pinned = {"source": {"huggingFace": {"repo": "Qwen/Qwen3-8B", "revision": 40 * "a"}}}
    ngram = {"method": "ngram", "numSpeculativeTokens": 3, "draft": None}
    story = await at_rest(spec={"replicas": 4, "model": pinned, "speculation": ngram})
    assert advised(story) == ""
    assert all("is widened" in text for text in story.status["findings"]), "which asks for nothing"
