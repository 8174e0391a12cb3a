"""What the operator itself has asked of a pod, counted as the pod counts its requests. Pure."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Asked:
    """What the operator asked of one pod: requests that were answered, how many of them with an error, tokens.
    `in_flight` are the tokens that unanswered ones may have got. What was never answered is not known and not here."""

    requests: int = 0
    errors: int = 0
    finished: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    in_flight: int = 0

    def since(self, before: "Asked") -> "Asked":
        """What has been asked since `before`; nothing of what was forgotten meanwhile, as with a pod out of sight."""
        counts = {item.name: max(0, getattr(self, item.name) - getattr(before, item.name)) for item in fields(self)}
        return Asked(**{**counts, "in_flight": self.in_flight})

    def __add__(self, later: "Asked") -> "Asked":
        """Both; in flight is only what the later one says."""
        counts = {item.name: getattr(self, item.name) + getattr(later, item.name) for item in fields(self)}
        return Asked(**{**counts, "in_flight": later.in_flight})

    @property
    def most_tokens(self) -> int:
        """Generated tokens at most: one in flight at both ends of a block counts in both."""
        return self.generation_tokens + self.in_flight


NOTHING = Asked()
