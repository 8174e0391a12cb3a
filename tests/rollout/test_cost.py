"""What a rollout costs the API server."""

from collections import Counter

REQUESTS = 76  # of one promotion of 8 replicas with surge 1: what Argo Rollouts' basic canary needs


async def test_a_promotion_of_eight_replicas_makes_few_requests(at_rest):
    steps = [{"weight": weight, "minSeconds": 20} for weight in (5, 25, 50)]
    analysis = {"scrapeSeconds": 5, "blockSeconds": 10, "maxSeconds": 1200, "margins": {"speedPercent": 15}}
    story = await at_rest(spec={"replicas": 8, "rollout": {"steps": steps, "maxSurge": 1, "analysis": analysis}})
    before = len(story.kube.calls)
    story.edit("numSpeculativeTokens 3 -> 5", speculation={"numSpeculativeTokens": 5})
    await story.run_until(lambda: story.stable.number == 2)
    requests = Counter((call.verb, call.kind) for call in story.kube.calls[before:] if call.kind != "Event")
    assert requests.total() <= REQUESTS, requests.most_common()


async def test_a_fleet_at_rest_makes_no_request(at_rest):
    story = await at_rest()
    before = len(story.kube.calls)
    await story.run(3600)
    assert story.kube.calls[before:] == []
