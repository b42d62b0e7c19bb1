"""RDMA devices through pyverbs, which is imported here only, and only when asked for.

Two lines of pyverbs are known: 44 (Debian's python3-pyverbs) keeps its constants in `pyverbs.enums`, 59 (the
package index) in `pyverbs.libibverbs_enums`. Names and arguments were checked against an installed 44 and the sources
of 59; none of this has run on a device (docs/gpu-clocks.md).

A `Device` gives its free-running counter in ticks. A `Loop` writes eight bytes from the device to itself, over a
connected queue pair, and reads the completions' stamps: raw ticks, and the wall clock where the driver has it.
"""

import importlib
from types import ModuleType
from typing import Any, Final, NamedTuple

from schemas.errors import Setup

PORT: Final = 1
OUTSTANDING_MAX: Final = 16
_EMPTY: Final = 2  # start_poll: nothing waits
_ENUMS: Final = ("pyverbs.libibverbs_enums", "pyverbs.enums")
_PSN: Final = 0
_WRITE_BYTES: Final = 8


class Completion(NamedTuple):
    """One completion: the write's number, its status (0 is success), the stamps; None where the driver has none."""

    number: int
    status: int
    ticks: int | None
    wallclock_ns: int | None


class Binding:
    """pyverbs as it is installed. Raises Setup if it is not."""

    def __init__(self) -> None:
        self.device = _module("pyverbs.device")
        self.errors: tuple[type[Exception], ...] = (_module("pyverbs.pyverbs_error").PyverbsError,)
        for name in _ENUMS:
            try:
                self.enums = importlib.import_module(name)
            except ImportError:
                continue
            return
        raise Setup(
            f"pyverbs is installed, but has none of {', '.join(_ENUMS)}: versions 44 and 59 are known"
        )

    def devices(self) -> list[str]:
        """Names of the devices here, in order; none is no error."""
        try:
            found = self.device.get_device_list()
        except self.errors:
            return []  # this is how pyverbs says that there is none
        return sorted(_text(each.name) for each in found)

    def open(self, name: str) -> "Device":
        """The device of this name. Raises Setup, naming those there are."""
        there = self.devices()
        if name not in there:
            known = f"the devices here are {', '.join(there)}" if there else "no RDMA device is here"
            raise Setup(f"no RDMA device {name}: {known}")
        try:
            return Device(self, name)
        except self.errors as error:
            raise Setup(f"RDMA device {name} cannot be opened: {error}") from None


class Device:
    """An open device. `core_khz` is its counter's rate; `mask` the bits of a stamp, 0 if it stamps nothing."""

    def __init__(self, binding: Binding, name: str) -> None:
        self.binding, self.name = binding, name
        self.context: Any = binding.device.Context(name=name)
        attributes = self.context.query_device_ex()
        self.core_khz = int(attributes.hca_core_clock)
        self.mask = int(attributes.completion_timestamp_mask)

    def ticks(self) -> int:
        """The counter now, as the driver gives it: mlx5 puts raw ticks in the field of nanoseconds."""
        seconds, rest = self.context.query_rt_values_ex()
        return int(seconds) * 1_000_000_000 + int(rest)

    def loop(self) -> "Loop":
        """A queue pair that writes to itself. Raises Setup if the device refuses one."""
        try:
            return Loop(self)
        except self.binding.errors as error:
            raise Setup(f"RDMA device {self.name} refuses a queue pair to itself: {error}") from None

    def close(self) -> None:
        """Give the device back."""
        self.context.close()


class Loop:
    """Eight bytes from a device to itself, as often as asked; at most OUTSTANDING_MAX at a time."""

    def __init__(self, device: Device) -> None:
        self._names = names = device.binding.enums
        self._errors = device.binding.errors
        self._cq, self._qp, self._wr = (_module(f"pyverbs.{each}") for each in ("cq", "qp", "wr"))
        self._queue, self.wallclock = self._completion_queue(device)
        access = names.IBV_ACCESS_LOCAL_WRITE | names.IBV_ACCESS_REMOTE_WRITE
        domain = _module("pyverbs.pd").PD(device.context)
        self._memory = _module("pyverbs.mr").MR(domain, _WRITE_BYTES, access)
        limits = self._qp.QPCap(max_send_wr=OUTSTANDING_MAX, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
        wanted = self._qp.QPInitAttr(
            qp_type=names.IBV_QPT_RC, scq=self._queue, rcq=self._queue, cap=limits, sq_sig_all=1
        )
        self._pair = self._qp.QP(domain, wanted)
        self._pair.to_rts(self._to_itself(device, access))
        self._domain = domain  # kept: pyverbs closes what nobody holds
        self._number = 0
        self.waiting = 0

    def write(self) -> int:
        """Post one write; gives its number. Raises Setup if it is refused, or OUTSTANDING_MAX still wait."""
        if self.waiting == OUTSTANDING_MAX:
            raise Setup(f"{OUTSTANDING_MAX} writes do not complete")
        names, memory = self._names, self._memory
        self._number += 1
        piece = self._wr.SGE(memory.buf, _WRITE_BYTES, memory.lkey)
        request = self._wr.SendWR(
            wr_id=self._number,
            opcode=names.IBV_WR_RDMA_WRITE,
            num_sge=1,
            sg=[piece],
            send_flags=names.IBV_SEND_SIGNALED,
        )
        request.set_wr_rdma(memory.rkey, memory.buf)
        try:
            self._pair.post_send(request)
        except self._errors as error:
            raise Setup(f"a write is refused: {error}") from None
        self.waiting += 1
        return self._number

    def poll(self) -> list[Completion]:
        """The completions that wait, oldest first; never blocks. Raises Setup if the queue is broken."""
        state = self._queue.start_poll(self._cq.PollCqAttr())
        if state == _EMPTY:
            return []
        out = []
        while state == 0:
            status = int(self._queue.status)
            # Of a failed write nothing but its number and status is there to be read.
            raw = None if status else int(self._queue.read_timestamp())
            wall = None if status or not self.wallclock else int(self._queue.read_completion_wallclock_ns())
            out.append(Completion(int(self._queue.wr_id), status, raw, wall))
            state = self._queue.poll_next()
        self._queue.end_poll()
        if state != _EMPTY:
            raise Setup(f"polling completions failed with {state}")
        self.waiting -= len(out)
        return out

    def close(self) -> None:
        """Give everything back, what uses another first."""
        for each in (self._pair, self._memory, self._domain, self._queue):
            each.close()

    def _completion_queue(self, device: Device) -> tuple[Any, bool]:
        """A queue with raw stamps, and the wall clock too where the driver takes that flag."""
        names = self._names
        raw = names.IBV_WC_STANDARD_FLAGS | names.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
        both = raw | names.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK
        try:
            wanted = self._cq.CqInitAttrEx(cqe=2 * OUTSTANDING_MAX, wc_flags=both)
            return self._cq.CQEX(device.context, wanted), True
        except device.binding.errors:
            wanted = self._cq.CqInitAttrEx(cqe=2 * OUTSTANDING_MAX, wc_flags=raw)
            return self._cq.CQEX(device.context, wanted), False

    def _to_itself(self, device: Device, access: int) -> Any:
        """What connects the pair with itself."""
        names, address = self._names, _module("pyverbs.addr")
        port = device.context.query_port(PORT)
        ethernet = port.link_layer == names.IBV_LINK_LAYER_ETHERNET
        route = (
            address.GlobalRoute(dgid=device.context.query_gid(PORT, 0), sgid_index=0) if ethernet else None
        )
        out = self._qp.QPAttr(port_num=PORT)
        out.qp_access_flags = access
        out.path_mtu = port.active_mtu
        out.dest_qp_num = self._pair.qp_num
        out.rq_psn = out.sq_psn = _PSN
        out.max_rd_atomic = out.max_dest_rd_atomic = 1
        out.min_rnr_timer, out.timeout, out.retry_cnt, out.rnr_retry = 12, 14, 7, 7
        if ethernet:
            out.ah_attr = address.AHAttr(port_num=PORT, is_global=1, gr=route)
        else:
            out.ah_attr = address.AHAttr(port_num=PORT, dlid=port.lid)
        return out


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Setup(
            f"pyverbs is missing ({error}): install python3-pyverbs, or the extra with pip install 'tempotrace[rdma]'"
        ) from None


def _text(name: object) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)
