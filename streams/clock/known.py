"""What is known of a clock whatever it was measured against: its epochs, and the relations with its parents."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from typing import Final, NamedTuple

from schemas.columns import Status
from schemas.time import TAI
from streams.clock.relation import NEVER, Measured, Relation

RELATIONS_MAX: Final = 8  # of one clock: those with the oldest samples go first
_IDENTITY: Final = re.compile(r"[0-9a-f]{6}\.[0-9a-f]{4}\.[0-9a-f]{6}(-\d+)?$")


class Told(NamedTuple):
    """A statement that counts this epoch of a clock, and the first stamp (TAI) under it."""

    time_ns: int
    clock: str
    epoch: int


class Before(NamedTuple):
    """A clock as it was up to the last sample before a new epoch, for the window that is judged now. `last_ns`: no
    stamp of the new epoch is known to lie before it."""

    until_ns: int
    last_ns: int
    epoch: int
    stated: int
    relations: Mapping[str, Relation]


@dataclass
class Clock:
    """What is known of one clock, whatever it was measured against."""

    relations: dict[str, Relation] = field(default_factory=dict)
    before: Before | None = None
    master: str | None = None  # what its daemon last named as its best master
    epoch: int = 0  # steps, jumps and resets so far
    why: str = ""  # of the last of them
    stated: int = 0  # epoch of the clock that statements last counted
    stated_ns: int = NEVER  # and since when
    told_ns: int = NEVER  # when the last of them was over
    since_ns: int = (
        NEVER  # stamps from then on are of this epoch: later than that by as much as the clock went back
    )
    restated: bool = False  # the last new epoch was told by a statement, which then holds in it

    def all_are(self, status: Status) -> bool:
        """Whether this status was told of all relations, be it none."""
        return all(one.status == status for one in self.relations.values())

    def went_back(self, back_ns: int) -> None:
        """Stamps of as long before and after the last new epoch may be of either."""
        self.since_ns = max(self.since_ns, self.told_ns + back_ns)
        if self.before is not None:
            until = min(self.before.until_ns, self.before.last_ns - back_ns)
            self.before = self.before._replace(until_ns=until)

    def relation(self, parent: str) -> Relation:
        """That with a parent, new if need be; the one with the oldest samples makes place."""
        found = self.relations.get(parent)
        if found is None:
            if len(self.relations) >= RELATIONS_MAX:
                del self.relations[
                    min(self.relations, key=lambda name: (self.relations[name].as_of_ns, name))
                ]
            found = self.relations[parent] = Relation()
        return found


PLAIN: Final = tuple(one.name for one in fields(Clock) if one.name not in ("relations", "before"))


class Look(NamedTuple):
    """A clock at a stamp. `found` None: nothing measured holds. `broke_ns`: its last new epoch, if no statement told
    that; `void_ns`: since when its samples are too old (both NEVER if not). `torn`: of which epoch is not known."""

    epoch: int
    found: tuple[str, Relation, Measured] | None = None
    broke_ns: int = NEVER
    void_ns: int = NEVER
    torn: bool = False
    why: str = ""  # of the last new epoch


def ended(form: str, text: str | None, status: Status | None) -> str | None:
    """What a row tells that ends an epoch of its clock; None if nothing does."""
    if status == Status.STEPPED:
        return "stepped by its daemon"
    if status == Status.UNKNOWN:
        return "frequency at its limit"
    if form.endswith(".clockcheck") and text is not None and "jumped" in text:
        return text
    return None


def parent_name(clock: str, parent: str | None) -> str:
    """The name under which a parent is one clock for all who were measured against it.

    An address, a PTP identity and a name with its host are; `PPS`, a pool's host name, a link-local or loopback address
    (each machine has its own behind it) and a parent without a name are this host's alone.
    """
    host = clock.rsplit("/", 1)[0]
    if parent is None:
        return f"{clock} master"
    if "/" in parent or parent == TAI or _IDENTITY.match(parent):
        return parent
    try:
        address = ip_address(parent)
    except ValueError:
        return f"{host}/{parent}"
    return f"{host}/{parent}" if address.is_link_local or address.is_loopback else parent
