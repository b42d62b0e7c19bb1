"""What readings of a GPU's timer say of its map to a host's clock: constraints, from every source there is.

Let H(g) be the host's time when the GPU's timer shows g. A timer that is read as r shows something in
[r, r + tick). A host stamp taken before the reading says H(r + tick) ≥ stamp, one taken after it says
H(r) ≤ stamp. That is all that any source gives:

- `brackets`: host, GPU, host, read in this order (`read_rows` has them from the log);
- `launches`: a kernel begins after its launch call did and ends before the wait for it returns (CUPTI, Kineto);
- `nccl`: NCCL's profiler sees the GPU's start and stop stamps after they were written;
- `nic_writes`: the card stamps what it sends to the GPU and what it gets from there; H is then the card's clock.

Times are int64 ns; NONE stands for what a record does not have.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.columns import NULL_I64

I64 = NDArray[np.int64]
NONE: Final = NULL_I64


class Constraints(NamedTuple):
    """Steps in order: H(upper_gpu) ≤ upper_host and H(lower_gpu) ≥ lower_host, ns, NONE where a side is absent."""

    upper_gpu: I64
    upper_host: I64
    lower_gpu: I64
    lower_host: I64


def brackets(before: I64, gpu: I64, after: I64, tick_ns: int, host_tick_ns: int = 1) -> Constraints:
    """One step a read: the host's clock, the GPU's timer, the host's clock again. All of shape (reads,)."""
    order = np.argsort(before, kind="stable")
    before, gpu, after = before[order], gpu[order], after[order]
    # A host stamp was cut off to its own tick: the moment lies up to one later.
    return Constraints(gpu, after + host_tick_ns, gpu + tick_ns, before)


def read_rows(raw_ns: I64, offset_ns: I64, delay_ns: I64, tick_ns: int) -> Constraints:
    """READ rows of the clock family as brackets again: nothing was rounded away. All of shape (rows,).

    `raw_ns` is the parent's stamp before the reading, `delay_ns` the time to the one after it, `offset_ns` the
    reading less their middle, rounded down.
    """
    after = raw_ns + delay_ns
    return brackets(raw_ns, offset_ns + (raw_ns + after) // 2, after, tick_ns)


def _sides(upper_gpu: I64, upper_host: I64, lower_gpu: I64, lower_host: I64) -> Constraints:
    """One-sided constraints as steps, in the order of the GPU's timer."""
    gpu = np.concatenate([upper_gpu, lower_gpu])
    host = np.concatenate([upper_host, lower_host])
    is_upper = np.arange(len(gpu)) < len(upper_gpu)
    order = np.argsort(gpu, kind="stable")
    gpu, host, is_upper = gpu[order], host[order], is_upper[order]
    none = np.full(len(gpu), NONE)
    return Constraints(
        np.where(is_upper, gpu, none),
        np.where(is_upper, host, none),
        np.where(is_upper, none, gpu),
        np.where(is_upper, none, host),
    )


def launches(call: I64, begin: I64, end: I64, waited: I64, tick_ns: int) -> Constraints:
    """Kernels on a GPU's own timer: host time of the launch call's begin, and of the end of the call that waited.

    All of shape (kernels,); NONE in `call` or `waited` where the trace does not have it.
    """
    launched, seen = call != NONE, waited != NONE
    return _sides(end[seen], waited[seen], begin[launched] + tick_ns, call[launched])


def nccl(launch: I64, start: I64, start_seen: I64, stop: I64, stop_seen: I64, tick_ns: int) -> Constraints:
    """Channels of NCCL kernels: launch and sight of both stamps on the host's clock, the stamps on the GPU's.

    All of shape (channels,); NONE where a record lacks one.
    """
    begun = (launch != NONE) & (start != NONE)
    upper = [(start != NONE) & (start_seen != NONE), (stop != NONE) & (stop_seen != NONE)]
    return _sides(
        np.concatenate([start[upper[0]], stop[upper[1]]]),
        np.concatenate([start_seen[upper[0]], stop_seen[upper[1]]]),
        start[begun] + tick_ns,
        launch[begun],
    )


def nic_writes(sent: I64, seen: I64, wrote: I64, received: I64, tick_ns: int) -> Constraints:
    """RDMA writes between a card and a GPU, stamped by the card: one step an exchange, all of shape (exchanges,).

    The card stamps what it sends (`sent`), the GPU reads its timer once it finds it (`seen`), reads it again
    (`wrote`) and answers, and the card stamps the answer (`received`). The parent is the card's clock.
    """
    return Constraints(wrote, received, seen + tick_ns, sent)
