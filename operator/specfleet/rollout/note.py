"""A reason of the documented list with its line: what is waited for, or what was decided. Pure."""

from dataclasses import dataclass

from specfleet.api.reasons import Reason


@dataclass(frozen=True, slots=True)
class Note:
    """A reason from the documented list with its line."""

    reason: Reason
    message: str
