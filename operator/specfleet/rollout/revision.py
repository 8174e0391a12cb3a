"""Revision identity: which fields make a revision, and the name that follows from them. Pure."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

#: Does an edit of this part of the spec make a new revision (new pods, through a canary)?
MAKES_REVISION: Mapping[str, bool] = {
    "replicas": False,
    "paused": False,
    "restart": True,
    "revisionHistoryLimit": False,
    "model": True,
    "speculation": True,
    "speculation.tuning": False,
    "slo": False,
    "engine": True,
    "accelerator": True,
    "pod": True,
    "traffic": False,
    "rollout": False,
    "requestLog": True,
}

#: apimachinery's alphabet for generated names: no vowels, hence no words, and no look-alikes.
SAFE_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
HASH_LENGTH = 8


def revision_inputs(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a written spec that decides which pods run; empty values count as absent."""
    kept = {field: spec[field] for field in spec if MAKES_REVISION.get(field, False)}
    if isinstance(speculation := kept.get("speculation"), Mapping):
        kept["speculation"] = {
            key: value for key, value in speculation.items() if MAKES_REVISION.get(f"speculation.{key}", True)
        }
    cleaned = _without_empty(kept)
    return cleaned if isinstance(cleaned, dict) else {}


def identity(spec: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of the canonical JSON of `revision_inputs(spec)`: of what the user wrote, never of defaults."""
    canonical = json.dumps(revision_inputs(spec), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def short_hash(full: str, collisions: int = 0) -> str:
    """Eight characters for a name, from an identity and the number of names already taken by other identities."""
    number = int.from_bytes(hashlib.sha256(f"{full}/{collisions}".encode()).digest())
    characters = []
    for _ in range(HASH_LENGTH):
        number, index = divmod(number, len(SAFE_ALPHABET))
        characters.append(SAFE_ALPHABET[index])
    return "".join(characters)


def pick_hash(full: str, taken: Callable[[str], bool]) -> tuple[str, int]:
    """The first free short hash of an identity and how many collisions it took, as apps/v1 counts them."""
    for collisions in range(1000):
        if not taken(candidate := short_hash(full, collisions)):
            return candidate, collisions
    raise RuntimeError("no free revision name among 1000")


def first_difference(old: Any, new: Any, path: str = "") -> str:
    """The first field that differs between two revision inputs or templates, as `path: old -> new`; empty when equal.

    Items of a list are told by their `name` where all have one (`containers[vllm]`), else by their place (`args[3]`).
    """
    if old == new:
        return ""
    form = "{}.{}" if path else "{}{}"
    if isinstance(old, list) and isinstance(new, list):
        old, new, form = _keyed(old), _keyed(new), "{}[{}]"
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            if found := first_difference(old.get(key), new.get(key), form.format(path, key)):
                return found
    return f"{path}: {_text(old)} -> {_text(new)}"


def _keyed(items: list[Any]) -> Mapping[Any, Any]:
    named = {item["name"]: item for item in items if isinstance(item, Mapping) and "name" in item}
    return named if len(named) == len(items) else dict(enumerate(items))


def _without_empty(value: Any) -> Any:
    if isinstance(value, Mapping):
        cleaned = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in cleaned.items() if item not in (None, "", {}, [])}
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    return value


def _text(value: Any) -> str:
    if value is None:
        return "(unset)"
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
