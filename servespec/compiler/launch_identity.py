"""Two engines by what they were started with, each a mapping of names to words."""

from collections.abc import Mapping


def differing_names(one: Mapping[str, str], other: Mapping[str, str]) -> tuple[str, ...]:
    """In one order; a flag without words is the empty text, and another thing than no flag."""
    return tuple(name for name in sorted({*one, *other}) if _setting(one, name) != _setting(other, name))


def _setting(identity: Mapping[str, str], name: str) -> str | None:
    """None where nothing is set: an object that is empty without what is free in it says no more than no object."""
    value = identity.get(name)
    return None if value == "{}" else value
