"""How a SONiC switch is set to choose among next hops, and its groups with buckets.

Settings are read from CONFIG_DB's `SWITCH_HASH|GLOBAL` (fields, algorithms), APPL_DB's `SWITCH_TABLE:switch`
(seeds, offsets) and `PBH_HASH`/`PBH_HASH_FIELD` (policy-based hashing). Fine-grained groups (`FG_NHG*`) keep
flows on their links when a member goes; where STATE_DB's `FG_ROUTE_TABLE` shows the buckets they are taken.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from producers.fabric.shapes import mapping, whole
from schemas.errors import MalformedInput
from schemas.network import HashSettings, Route, RouteTable, prefix

BUCKETS_MAX: Final = 1 << 20


@dataclass(frozen=True)
class PolicyHash:
    """A policy-based hash: its fields in order, each with a mask ("" for none)."""

    name: str
    fields: tuple[tuple[str, str], ...]


def settings(found: Mapping[str, Any], where: str) -> HashSettings | None:
    """Hash settings of a SONiC dump (one file or several merged); None where it has none."""
    merged: dict[str, str] = {}
    for key, entry in found.items():
        if key in ("SWITCH_HASH|GLOBAL", "SWITCH_HASH_TABLE:GLOBAL", "SWITCH_TABLE:switch"):
            entry = entry.get("value", entry) if isinstance(entry, dict) else None
            if not isinstance(entry, dict):
                raise MalformedInput("hash settings are a mapping", f"{where}, {key}")
            merged |= {str(name): str(value) for name, value in entry.items()}
    wanted = ("ecmp_hash", "lag_hash")
    if not any(name.startswith(wanted) for name in merged):
        return None
    return HashSettings(
        merged.get("ecmp_hash_algorithm"),
        _fields(merged, "ecmp_hash"),
        _number(merged, "ecmp_hash_seed", where),
        _number(merged, "ecmp_hash_offset", where),
        merged.get("lag_hash_algorithm"),
        _fields(merged, "lag_hash"),
        _number(merged, "lag_hash_seed", where),
        _number(merged, "lag_hash_offset", where),
    )


def _fields(merged: Mapping[str, str], name: str) -> tuple[str, ...]:
    text = merged.get(f"{name}@", merged.get(name, ""))
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _number(merged: Mapping[str, str], name: str, where: str) -> int | None:
    text = merged.get(name)
    if text is None:
        return None
    try:
        return int(text, 0)
    except ValueError:
        raise MalformedInput(f"{name} is a number", f"{where}: {text!r}") from None


def policies(found: Mapping[str, Any], where: str) -> dict[str, PolicyHash]:
    """Policy-based hashes by name, their fields by sequence number. Raises MalformedInput."""
    fields = {
        key.partition("|")[2]: mapping(entry, f"{where}, {key}")
        for key, entry in found.items()
        if key.startswith("PBH_HASH_FIELD|")
    }
    out = {}
    for key, entry in found.items():
        if not key.startswith("PBH_HASH|"):
            continue
        name = key.partition("|")[2]
        listed = _fields(
            {"hash_field_list@": str(mapping(entry, f"{where}, {key}").get("hash_field_list@", ""))},
            "hash_field_list",
        )
        unknown = [field for field in listed if field not in fields]
        if unknown:
            raise MalformedInput(f"the hash has a field {unknown[0]} that is not defined", f"{where}, {key}")
        ordered = sorted(listed, key=lambda field: whole(fields[field].get("sequence_id"), 0, where))
        out[name] = PolicyHash(
            name,
            tuple(
                (str(fields[field].get("hash_field", field)), str(fields[field].get("ip_mask", "")))
                for field in ordered
            ),
        )
    return out


def with_buckets(table: RouteTable, found: Mapping[str, Any], where: str) -> RouteTable:
    """The table whose routes know that their groups are fine-grained, with buckets where they are shown.

    A group matches by prefix, or by next hops: then every next hop of the route is one of its members.
    """
    sizes = {
        key.partition("|")[2]: _size(entry, f"{where}, {key}")
        for key, entry in found.items()
        if key.startswith("FG_NHG|")
    }
    if not sizes:
        return table
    by_prefix = {
        str(prefix(key.partition("|")[2])): str(mapping(entry, where).get("FG_NHG"))
        for key, entry in found.items()
        if key.startswith("FG_NHG_PREFIX|")
    }
    by_member = {
        key.partition("|")[2]: str(mapping(entry, where).get("FG_NHG"))
        for key, entry in found.items()
        if key.startswith("FG_NHG_MEMBER|")
    }
    shown = {
        str(prefix(key.partition("|")[2])): entry
        for key, entry in found.items()
        if key.startswith("FG_ROUTE_TABLE|")
    }

    def of(route: Route) -> Route:
        group = by_prefix.get(str(route.prefix))
        if group is None:
            groups = {by_member.get(hop.gateway or "") for hop in route.next_hops}
            group = groups.pop() if len(groups) == 1 else None
        if group is None or len(route.next_hops) < 2:
            return route
        if group not in sizes:
            raise MalformedInput(f"fine-grained group {group} is not defined", where)
        buckets = _buckets(route, shown.get(str(route.prefix)))
        return replace(route, resilient=sizes[group] or None, buckets=buckets)

    routes = {vrf: tuple(map(of, mine)) for vrf, mine in table.routes.items()}
    return replace(table, routes=routes)


def _size(entry: Any, where: str) -> int:
    """Buckets of a group. Raises MalformedInput."""
    text = str(entry.get("bucket_size", 0)) if isinstance(entry, dict) else ""
    if not text.isdecimal() or int(text) > BUCKETS_MAX:
        raise MalformedInput(f"bucket_size is a number up to {BUCKETS_MAX}", where)
    return int(text)


def _buckets(route: Route, shown: Any) -> tuple[int, ...] | None:
    """Places of next hops by bucket, from `{"0": "10.0.0.1@Ethernet0", ...}`; None if they don't agree."""
    if not isinstance(shown, dict):
        return None
    place = {hop.gateway: k for k, hop in enumerate(route.next_hops)}
    numbered = sorted((int(key), str(value)) for key, value in shown.items() if str(key).isdecimal())
    found = [place.get(value.partition("@")[0]) for _, value in numbered]
    if not found or any(k is None for k in found) or [n for n, _ in numbered] != list(range(len(numbered))):
        return None
    return tuple(k for k in found if k is not None)
