"""Asks a starting API server whether it answers, without a kubectl process for each question."""

import json
import ssl
import urllib.request
from pathlib import Path
from typing import Any


class Api:
    """GET as administrator, with the keys that `pki.write` made."""

    def __init__(self, url: str, keys: Path):
        self._url = url
        self._context = ssl.create_default_context(cafile=str(keys / "ca.crt"))
        self._context.load_cert_chain(keys / "admin.crt", keys / "admin.key")

    def answers(self, path: str) -> bool:
        return self._get(path) is not None

    def object(self, path: str) -> dict[str, Any]:
        """The object at `path`; empty when there is none (yet)."""
        return json.loads(self._get(path) or b"{}")  # type: ignore[no-any-return]

    def _get(self, path: str) -> bytes | None:
        try:
            with urllib.request.urlopen(self._url + path, context=self._context, timeout=5) as response:
                return bytes(response.read())
        except OSError:  # not listening yet, or 403, 404, 500: the same to somebody who waits
            return None
