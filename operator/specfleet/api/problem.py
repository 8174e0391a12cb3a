"""What is wrong with one field, in one line that says what to do about it. Pure."""

import json
from dataclasses import dataclass
from typing import Any

_LONGEST = 80


@dataclass(frozen=True, slots=True)
class Problem:
    """A field of the custom resource that cannot be used. `field` is its path, as in `kubectl explain`; `value` is what
    the user wrote, None if nothing; `message` says what is wrong and what to do."""

    field: str
    value: Any
    message: str

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.field}: {self.message}"
        return f"{self.field}: {_short(self.value)}: {self.message}"


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
