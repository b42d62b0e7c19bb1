"""Which elephants share a link, and what that costs each.

What a flow loses is one less its max-min fair rate over the rate it would have if only the links of endpoints
were limits: a loss that another placement could avoid, never one of its own NIC. An elephant is a flow of at
least a tenth of the byte-weighted mean flow size, so that all of a set of equal flows are, and mice beside
them are not. A collision is a link between switches with two or more elephants whose unhindered rates add up
to more than its capacity.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.flow import address_text
from streams.paths.demand import Flows
from streams.paths.fabric import Fabric
from streams.paths.maxmin import Paths, fair_rates
from streams.paths.sums import order_by, summed

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

ELEPHANT: Final = 0.1
OVERLOAD: Final = 1.001
WORST: Final = 20
FLOWS_NAMED: Final = 16


@dataclass(frozen=True, eq=False)
class Sharing:
    """By flow: rate (bytes/s), rate were only its ends limits, loss (0 to 1), whether it is an elephant."""

    rate: F64
    alone: F64
    loss: F64
    elephant: NDArray[np.bool_]
    links: I64  # links with a collision, worst first
    overload: F64  # of each: wanted rate over capacity
    load: F64  # by link: bytes
    seconds: F64  # by link: bytes over capacity


def sharing(fabric: Fabric, flows: Flows, paths: Paths) -> Sharing:
    """Rates and collisions of flows on their paths."""
    capacity = fabric.links.capacity_bps / 8
    sender, receiver = fabric.links.sender, fabric.links.receiver
    inside = (sender >= fabric.endpoints) & (receiver >= fabric.endpoints)
    at_end = ~inside[paths.link]
    n = len(flows)
    rate, _ = fair_rates(paths, n, capacity)
    alone, _ = fair_rates(Paths(paths.flow[at_end], paths.link[at_end], paths.share[at_end]), n, capacity)
    with np.errstate(invalid="ignore"):
        loss = np.where(np.isfinite(alone), 1 - rate / alone, 0.0)
    elephant = flows.bytes >= ELEPHANT * float((flows.bytes**2).sum()) / max(float(flows.bytes.sum()), 1e-300)
    # Where no end is known, a flow wants all that its links give.
    want = np.where(np.isfinite(alone), alone, 0.0)
    use = elephant[paths.flow] & inside[paths.link]
    wanted = summed(paths.link[use], (paths.share * want[paths.flow])[use], len(capacity)) / capacity
    many = np.bincount(paths.link[use], minlength=len(capacity)) >= 2
    hit = np.flatnonzero(many & (wanted > OVERLOAD))
    hit = hit[np.argsort(-wanted[hit], kind="stable")]
    load = summed(paths.link, paths.share * flows.bytes[paths.flow], len(capacity))
    return Sharing(rate, alone, np.maximum(loss, 0.0), elephant, hit, wanted[hit], load, load / capacity)


def summary(fabric: Fabric, flows: Flows, paths: Paths, found: Sharing) -> dict[str, Any]:
    """As the field `collisions` of a report: totals, the worst links and their flows, jobs and tenants."""
    worst = found.links[:WORST]
    order = order_by(paths.link, len(fabric.links))
    low = np.searchsorted(paths.link[order], worst)
    high = np.searchsorted(paths.link[order], worst, "right")
    rows = []
    for k, link in enumerate(worst.tolist()):
        on = paths.flow[order[low[k] : high[k]]]
        on = on[found.elephant[on]]
        on = on[np.argsort(-found.loss[on], kind="stable")]
        rows.append(
            {
                "link": fabric.link_name(link),
                "layer": fabric.links.layers[int(fabric.links.layer[link])],
                "elephants": len(on),
                "overload": float(found.overload[k]),
                "bytes": float(found.load[link]),
                "jobs": sorted(
                    {"/".join(filter(None, flows.jobs[j])) for j in flows.job[on].tolist()} - {""}
                ),
                "flows": [
                    flow_row(flows, f) | {"loss": float(found.loss[f])} for f in on[:FLOWS_NAMED].tolist()
                ],
            }
        )
    elephants = np.flatnonzero(found.elephant)
    losing = elephants[found.loss[elephants] > 1 - 1 / OVERLOAD]
    return {
        "links": len(found.links), "elephants": len(elephants), "losing": len(losing),
        "mean_loss": float(found.loss[elephants].mean()) if len(elephants) else 0.0,
        "max_loss": float(found.loss[elephants].max(initial=0.0)),
        "worst": rows, "jobs": by_job(flows, paths, found), "hot_links": hot_links(fabric, found),
    }  # fmt: skip


def flow_row(flows: Flows, flow: int) -> dict[str, Any]:
    """A flow by its addresses and ports."""
    return {
        "src": _address(flows.src_address[flow]), "dst": _address(flows.dst_address[flow]),
        "src_port": int(flows.sport[flow]), "dst_port": int(flows.dport[flow]),
        "protocol": int(flows.protocol[flow]), "bytes": float(flows.bytes[flow]),
    }  # fmt: skip


def _address(packed: NDArray[np.uint8]) -> str:
    return address_text(packed.tobytes())


def by_job(flows: Flows, paths: Paths, found: Sharing, most_named: int = WORST) -> list[dict[str, Any]]:
    """Each job's flows, bytes and losses; on how many colliding links it meets another job. Worst first."""
    jobs = len(flows.jobs)
    count = np.bincount(flows.job, minlength=jobs)
    size = summed(flows.job, flows.bytes, jobs)
    lost = summed(flows.job, flows.bytes * found.loss, jobs)
    most = np.zeros(jobs)
    np.maximum.at(most, flows.job, found.loss)
    hit = np.zeros(len(found.load), np.bool_)
    hit[found.links] = True
    use = hit[paths.link] & found.elephant[paths.flow]
    link, job = np.divmod(
        np.unique(paths.link[use].astype(np.int64) * jobs + flows.job[paths.flow[use]]), jobs
    )
    per_link = np.bincount(link, minlength=1)
    shared = np.bincount(job[per_link[link] > 1], minlength=jobs)
    rows = [
        {
            "tenant": tenant, "job": job, "flows": int(count[k]), "bytes": float(size[k]),
            "mean_loss": float(lost[k] / size[k]) if size[k] else 0.0, "max_loss": float(most[k]),
            "links_shared_with_others": int(shared[k]),
        }
        for k, (tenant, job) in enumerate(flows.jobs)
        if count[k]
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -float(str(row["mean_loss"])))[:most_named]


def hot_links(fabric: Fabric, found: Sharing) -> list[dict[str, Any]]:
    """The links between switches that need longest for their bytes, over the mean of their layer."""
    inside = (fabric.links.sender >= fabric.endpoints) & (fabric.links.receiver >= fabric.endpoints)
    layer = fabric.links.layer
    total = summed(layer[inside], found.seconds[inside], len(fabric.links.layers))
    count = np.bincount(layer[inside], minlength=len(fabric.links.layers))
    mean = total / np.maximum(count, 1)
    seconds = np.where(inside, found.seconds, 0.0)
    top = np.argsort(-seconds, kind="stable")[:WORST]
    return [
        {
            "link": fabric.link_name(k),
            "layer": fabric.links.layers[int(layer[k])],
            "bytes": float(found.load[k]),
            "seconds": float(seconds[k]),
            "over_mean": float(seconds[k] / mean[layer[k]]),
        }
        for k in top.tolist()
        if seconds[k] > 0
    ]
