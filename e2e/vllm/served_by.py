"""A middleware for `vllm serve --middleware served_by.Tag`: every answer names its pod in x-served-by."""

import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
NAME = os.uname().nodename.encode()


class Tag:
    """ASGI: adds one header to every HTTP response."""

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        async def tagged(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-served-by", NAME)]
            await send(message)

        await self._app(scope, receive, tagged)
