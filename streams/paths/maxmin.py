"""How long flows take: max-min fair rates, refilled at every completion.

Rates: all flows grow together; a link that is full stops its flows (`streams/kernels/fair.py`; as rounds over
whole arrays the same took 21 s where the kernel takes 1.2 s, for a million flows). A flow that is split over
links uses each in proportion to its share.

This is fluid and without delay. What congestion control, pause frames, incast, the order of a collective's
steps and reordering do is left out; `paused_rates` gives the other end of a range for priority flow control:
ports that are one queue, where a flow held up downstream holds up all that share a link before it.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streams.kernels.fair import fill
from streams.paths.route import Entries
from streams.paths.sums import order_by, summed

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

FRAME_OVERHEAD: Final = 82  # Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4, FCS 4, preamble 8, gap 12
SAME: Final = 1e-9  # levels and times nearer than this, relative, are the same
PASSES_MAX: Final = 1000

LEFT_OUT: Final = (
    "DCQCN and other congestion control: rates are at their fair share at once",
    "PFC: see the range; its upper end takes every port as one queue",
    "incast at receivers beyond the fair share of their link",
    "ring and step dependencies: all flows start together and none waits for another",
    "reordering: sprayed and flowlet traffic pays nothing for it",
)


@dataclass(frozen=True, eq=False)
class Paths:
    """Entries by flow and hop, with links for slots: what rates depend on."""

    flow: I32
    link: I32
    share: F64

    def only(self, live: NDArray[np.bool_]) -> "Paths":
        """The entries of these flows."""
        use = live[self.flow]
        return Paths(self.flow[use], self.link[use], self.share[use])


@dataclass(frozen=True)
class Completion:
    """Seconds until the last flow is done, and the bound that no schedule can beat."""

    seconds: float
    bound: float  # max over links of bytes/capacity
    refills: int
    coalesced: bool  # completions nearer than `grain` were taken together
    by_flow: F64


def paths_of(entries: Entries, slot_link: I32) -> Paths:
    """Entries as paths over links."""
    return Paths(entries.flow, slot_link[entries.slot], entries.share)


def wire_bytes(payload: F64, mtu: int) -> F64:
    """Bytes on the wire of a RoCEv2 message in packets of at most `mtu` payload bytes."""
    out: F64 = payload + FRAME_OVERHEAD * np.ceil(payload / mtu)
    return out


def fair_rates(paths: Paths, flows: int, capacity: F64) -> tuple[F64, I64]:
    """(max-min fair rate of each flow, in the unit of `capacity`; the entry of `paths` that limits it).

    A flow without entries has rate inf and limit −1.
    """
    links = len(capacity)
    order = order_by(paths.link, links)
    return fill(
        np.searchsorted(paths.flow, np.arange(flows + 1)),
        paths.link,
        paths.share,
        np.searchsorted(paths.link[order], np.arange(links + 1)),
        order,
        paths.flow,
        capacity.astype(np.float64),
        summed(paths.link, paths.share, links),
    )


def paused_rates(paths: Paths, flows: int, capacity: F64) -> F64:
    """Rates if each port is one queue and pauses spread: a link passes no flow faster than the slowest that
    it carries towards a later bottleneck.
    """
    rate, limit = fair_rates(paths, flows, capacity)
    entry = np.arange(len(paths.flow))
    for _ in range(PASSES_MAX):
        before = entry < limit[paths.flow]
        ceiling = np.full(len(capacity), np.inf)
        np.minimum.at(ceiling, paths.link[before], rate[paths.flow[before]])
        slower = ceiling[paths.link] < rate[paths.flow] * (1 - SAME)
        if not slower.any():
            break
        place = np.flatnonzero(slower)
        np.minimum.at(rate, paths.flow[place], ceiling[paths.link[place]])
        at_floor = place[ceiling[paths.link[place]] <= rate[paths.flow[place]] * (1 + SAME)]
        limit[paths.flow[at_floor]] = at_floor  # entries ascend: the last one stays
    return rate


def link_bound(paths: Paths, size: F64, capacity: F64) -> float:
    """max over links of bytes/capacity; `size` in bytes by flow, `capacity` in bytes per second."""
    load = summed(paths.link, paths.share * size[paths.flow], len(capacity))
    return float((load / capacity).max(initial=0.0))


def complete(
    paths: Paths, size: F64, capacity: F64, *, paused: bool = False, grain: float = 0.0
) -> Completion:
    """Run all flows to their end. `size` in bytes by flow, `capacity` in bytes per second by link.

    With `grain` > 0 flows that end within that part of the time gone by are taken off together (each still
    ends at its own time, but the others get its rate a little later).
    """
    flows = len(size)
    left = size.astype(np.float64).copy()
    end = np.zeros(flows)
    now, refills = 0.0, 0
    live = left > 0
    part = paths.only(live)
    coalesced = False
    while live.any():
        rates = paused_rates(part, flows, capacity) if paused else fair_rates(part, flows, capacity)[0]
        refills += 1
        number = np.flatnonzero(live)
        span = left[number] / rates[number]
        step = float(span.min())
        reach = step + max(grain * (now + step), SAME * step)
        ending = span <= reach
        step_to = float(span[ending].max())
        coalesced |= step_to > step * (1 + SAME)
        left[number] -= rates[number] * step_to
        over = number[ending]
        end[over] = now + span[ending]
        now += step_to
        live[over] = False
        part = part.only(live)
    bound = link_bound(paths, size, capacity)
    seconds = float(end.max(initial=0.0))
    assert seconds >= bound * (1 - 1e-6), (seconds, bound)
    return Completion(seconds, bound, refills, coalesced, end)
