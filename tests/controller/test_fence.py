"""What may be written without the Lease: the Lease."""

import pytest

from specfleet.controller.kube import KubeClient
from specfleet.controller.protocol import EVENT, ApiError
from specfleet.plan import Verb, Write


async def test_nothing_leaves_a_process_that_does_not_lead() -> None:
    kube = KubeClient((), lambda: False)
    write = Write(Verb.PATCH, {"kind": "Pod", "metadata": {"name": "p"}}, "why")
    with pytest.raises(ApiError, match="not the leader"):
        await kube.write("ns", write)
    with pytest.raises(ApiError, match="not the leader"):
        await kube.patch_status("ns", "name", {}, "uid")
    with pytest.raises(ApiError, match="not the leader"):
        await kube.create(EVENT, "ns", {})
