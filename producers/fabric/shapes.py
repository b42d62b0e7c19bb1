"""Checks on JSON that others wrote: the value as what it has to be, or MalformedInput with the place."""

from collections.abc import Mapping
from typing import Any

from schemas.errors import MalformedInput


def mapping(found: Any, where: str) -> Mapping[str, Any]:
    """The mapping; an absent one is empty."""
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise MalformedInput(f"not an object but {_kind(found)}", where)
    return found


def mappings(found: Any, where: str) -> list[Mapping[str, Any]]:
    """The list of mappings; an absent one is empty."""
    if found is None:
        return []
    if not isinstance(found, list):
        raise MalformedInput(f"not a list but {_kind(found)}", where)
    return [mapping(entry, where) for entry in found]


def whole(found: Any, fallback: int, where: str) -> int:
    """The whole number, also as text; `fallback` where it is absent."""
    if found is None:
        return fallback
    try:
        return int(str(found))
    except ValueError:
        raise MalformedInput(f"no whole number: {str(found)[:40]!r}", where) from None


def word(found: Any) -> str:
    """The text; "" where it is absent or no text."""
    return found if isinstance(found, str) else ""


def _kind(found: Any) -> str:
    if isinstance(found, list):
        return "a list"
    return "text" if isinstance(found, str) else repr(found)[:40]
