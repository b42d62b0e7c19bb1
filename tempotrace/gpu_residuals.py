"""How far mapped times of GPU events lie from the truth, by what was read: a part of the experiment gpu-map.

Simulated, and no more than that: the delays of a card's writes are assumed (a posted write each way through one
PCIe switch, 200 to 300 ns, other in each direction, and some jitter), so the figure for NIC stamps is what such
delays and the timer's tick leave, beside a design target that the TempoTrace paper states. What the map can't
see is half the difference of the two ways; what no map can see is where in its tick an event lies.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from producers.sim import gputimer as sim
from streams.clock.gpumap import Limits, Mapper
from streams.clock.gpureads import NONE, Constraints, brackets, nic_writes

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

READS: Final = 300
EVERY_S: Final = 0.025
PCIE_FLOOR_NS: Final = (200.0, 600.0)
PCIE_JITTER_NS: Final = 500.0
NIC_FLOOR_NS: Final = (200.0, 300.0)
NIC_JITTER_NS: Final = 30.0
NIC_STAMP_NS: Final = 4
ANSWER_NS: Final = 150.0  # between the GPU's two readings
LAUNCH_NS: Final = (2_000.0, 10_000.0)  # a kernel begins so long after its launch call
PUBLISHED_NS: Final = {"software correlation": 2_100.0, "NIC stamps": 56.0}  # by the TempoTrace paper


def residuals(
    rng: np.random.Generator, ticks: str, wander_ppb_s: float, maps: int, events: int
) -> list[dict[str, Any]]:
    """One entry a method, pooled over `maps` independent timers and paths: ns."""
    errors: dict[str, list[F64]] = {}
    bounds: dict[str, list[F64]] = {}
    false = dict.fromkeys(("feasible set of brackets", "NIC stamps"), 0)
    for _ in range(maps):
        timer = sim.Timer.draw(rng, ticks, wander_ppb_s, READS * EVERY_S)
        moments = sim.moments(rng, READS, EVERY_S)
        true = np.sort(rng.uniform(moments[100], moments[-2], events))
        stamp = timer.read(true)

        launch = true - rng.uniform(*LAUNCH_NS, events)
        errors.setdefault("software correlation", []).append(launch + sum(LAUNCH_NS) / 2 - true)

        path = sim.Path(_pair(rng, PCIE_FLOOR_NS), (PCIE_JITTER_NS, PCIE_JITTER_NS))
        before, reading, after = sim.exchange(timer, path, rng, moments)
        last = np.searchsorted(reading, stamp, side="right") - 1
        middle = (before + after)[last] / 2 + (stamp - reading[last])
        errors.setdefault("midpoint of the last bracket", []).append(middle - true)

        for name, given in (
            ("feasible set of brackets", brackets(before, reading, after, timer.tick_ns)),
            ("NIC stamps", _exchanges(timer, rng, moments)),
        ):
            limits = Limits(wander_ppb_s=wander_ppb_s)
            states = Mapper("host/gpu", "parent", timer.tick_ns, limits, f"simulated {name}").add(given)
            step = np.searchsorted(given.upper_gpu, stamp, side="left")
            host, bound = states.map(step, stamp)
            known = bound != NONE
            error = (host - true)[known]
            whole = states.event_bound(bound[known])
            false[name] += int((np.abs(error) > whole).sum())
            errors.setdefault(name, []).append(error)
            bounds.setdefault(name, []).append(whole.astype(np.float64))
    out = []
    for name, parts in errors.items():
        error = np.concatenate(parts)
        out.append(
            {
                "ticks": ticks,
                "method": name,
                "events": len(error),
                "std_ns": float(np.std(error)),
                "rms_ns": float(np.sqrt(np.mean(error**2))),
                "bound_ns": float(np.median(np.concatenate(bounds[name]))) if name in bounds else None,
                "bound_violations": false.get(name),
                "published_ns": PUBLISHED_NS.get(name),
            }
        )
    return out


def _pair(rng: np.random.Generator, span: tuple[float, float]) -> tuple[float, float]:
    there, back = rng.uniform(*span, 2)
    return there, back


def _exchanges(timer: sim.Timer, rng: np.random.Generator, moments_ns: F64) -> Constraints:
    """Writes of a card that a GPU answers, both stamped by the card."""
    path = sim.Path(_pair(rng, NIC_FLOOR_NS), (NIC_JITTER_NS, NIC_JITTER_NS), interruption_ns=2_000.0)
    there, back = path.delays(rng, len(moments_ns))
    answered = moments_ns + ANSWER_NS
    sent = np.floor((moments_ns - there) / NIC_STAMP_NS).astype(np.int64) * NIC_STAMP_NS
    received = np.floor((answered + back) / NIC_STAMP_NS).astype(np.int64) * NIC_STAMP_NS
    return nic_writes(
        sent, timer.read(moments_ns), timer.read(answered), received + NIC_STAMP_NS, timer.tick_ns
    )
