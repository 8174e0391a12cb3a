"""The first look of an operator: the API server may be busy; what waiting does not mend is said at once."""

import pytest

from specfleet.controller.app import until_answered
from specfleet.controller.protocol import ApiError, Forbidden


def answers(*errors):
    """A look that fails so often, and then how often it was tried."""
    left, tried = list(errors), []

    async def look():
        tried.append(1)
        if left:
            raise left.pop(0)

    return look, tried


async def test_a_busy_api_server_is_asked_again():
    look, tried = answers(ApiError(0, "refused"), ApiError(429, "busy"), ApiError(503, "starting"))
    await until_answered(look, wait=0.0)
    assert len(tried) == 4


@pytest.mark.parametrize("error", [Forbidden(403, "pods is forbidden"), ApiError(401, "Unauthorized")])
async def test_what_no_waiting_mends_ends_it(error):
    look, tried = answers(error)
    with pytest.raises(ApiError, match=error.message):
        await until_answered(look, wait=0.0)
    assert len(tried) == 1
