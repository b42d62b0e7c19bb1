"""What a page shows, as plain data: links, flows with their hops, maps, and a side of them all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streams.paths.recorded import Seen
from tempotrace.page.bands import Group


@dataclass(frozen=True)
class Counted:
    """What port counters say of a link over the interval. None is unknown."""

    bytes: float
    utilisation: float | None
    coverage: float | None


@dataclass(frozen=True)
class Known:
    """What is known besides a case: of all its flows, and of links by name."""

    seen: Sequence[Seen] | None = None  # as recorded, one a flow; None where paths were computed
    interval_ns: tuple[int, int] | None = None
    counted: Mapping[str, Counted] = field(default_factory=dict)
    capacity: frozenset[str] | None = None  # links whose capacity is known; None: all


@dataclass(frozen=True)
class Link:
    """A half-link: one direction of a cable. `share` None: unknown."""

    number: int
    name: str
    ends: tuple[str, str, str, str]  # sender, its port, receiver, its port
    layer: str
    capacity_bps: float
    assumed: bool
    bytes: float
    flows: float
    share: float | None
    dead: bool
    idle: tuple[float, float] | None  # (flows expected, p) of a link without load
    counted: Counted | None
    carried: tuple[int, ...]  # flows named, those that lose most first
    inside: bool  # between switches
    listed: bool = True  # has a card

    @property
    def unknown(self) -> bool:
        """Whether its load can't be told."""
        return self.share is None


@dataclass(frozen=True)
class Hop:
    """One step of a path: the link, and how it is known that the flow takes it."""

    link: int
    name: str
    how: str


@dataclass(frozen=True)
class Flow:
    """A flow, what it loses, and its path."""

    number: int
    ends: tuple[str, int, str, int, int]  # source, port, destination, port, protocol
    bytes: float
    job: str
    loss: float
    rate_bps: float
    path: tuple[Hop, ...]
    source: str
    agreement: float | None


@dataclass(frozen=True)
class Map:
    """A layer too large to draw: switches by their links. `rows` worst first: (switch, links)."""

    layer: str
    rows: tuple[tuple[str, tuple[Link, ...]], ...]
    switches: int
    width: int  # most links of one switch


@dataclass(frozen=True)
class Side:
    """All that a page shows of one case."""

    report: dict[str, Any]
    basis: str  # "wanted" or "mean"
    links: tuple[Link, ...]  # with cards: dead first, then by share
    links_total: int
    assumed: int
    flows: tuple[Flow, ...]
    groups: tuple[Group, ...]
    groups_total: int
    maps: tuple[Map, ...]
    empty: tuple[str, ...]  # layers that would be maps, had any flow come
    nodes: tuple[tuple[str, int], ...]  # (name, row) of what is drawn; empty where maps are shown
    ports: tuple[tuple[str, int | str, str, int | str, int], ...] = ()
