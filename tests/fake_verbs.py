"""A pyverbs that never met a device: the modules, names and arguments that producers.host.verbs uses, no more.

`install` puts it into sys.modules, as version 44 or 59. A `Card` is what its device does.
"""

import sys
from collections import deque
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ENUMS = {
    "IBV_WC_STANDARD_FLAGS": 1, "IBV_WC_EX_WITH_COMPLETION_TIMESTAMP": 2,
    "IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK": 4, "IBV_ACCESS_LOCAL_WRITE": 1, "IBV_ACCESS_REMOTE_WRITE": 2,
    "IBV_QPT_RC": 2, "IBV_WR_RDMA_WRITE": 0, "IBV_SEND_SIGNALED": 2, "IBV_LINK_LAYER_ETHERNET": 2,
}  # fmt: skip


@dataclass
class Card:
    """A device: counter, rate and mask; what goes wrong with it; and what was asked of it."""

    core_khz: int = 156_250
    mask: int = 2**48 - 1
    ticks: int = 1_000_000
    ticks_a_reading: int = 200
    wallclock: bool = True
    wallclock_ns: int = 1_700_000_000_000_000_000
    pairs: bool = True
    status: int = 0
    lost: bool = False
    ethernet: bool = True
    posted: deque[int] = field(default_factory=deque)
    closed: list[str] = field(default_factory=list)
    pair: Any = None

    def read(self) -> int:
        self.ticks += self.ticks_a_reading
        return self.ticks & self.mask


class VerbsError(Exception):
    """PyverbsError."""


def install(patch: pytest.MonkeyPatch, cards: dict[str, Card], version: int = 44) -> None:
    """Make `import pyverbs` find this one, with these devices."""

    class Closes:
        kind = ""

        def __init__(self, card: Card) -> None:
            self.card = card

        def close(self) -> None:
            self.card.closed.append(self.kind)

    class Context(Closes):
        kind = "context"

        def __init__(self, *, name: str) -> None:
            super().__init__(cards[name])

        def query_device_ex(self) -> SimpleNamespace:
            return SimpleNamespace(
                hca_core_clock=self.card.core_khz, completion_timestamp_mask=self.card.mask
            )

        def query_rt_values_ex(self) -> tuple[int, int]:
            return 0, self.card.read()

        def query_port(self, number: int) -> SimpleNamespace:
            assert number == 1
            return SimpleNamespace(active_mtu=3, lid=7, link_layer=2 if self.card.ethernet else 1)

        def query_gid(self, port: int, index: int) -> str:
            return f"gid {port} {index}"

    class Domain(Closes):
        kind = "pd"

        def __init__(self, context: Context) -> None:
            super().__init__(context.card)

    class Memory(Closes):
        kind = "mr"
        buf, lkey, rkey = 4096, 11, 12

        def __init__(self, domain: Domain, length: int, access: int) -> None:
            assert (length, access) == (8, 3)
            super().__init__(domain.card)

    class Queue(Closes):
        kind = "cq"

        def __init__(self, context: Context, wanted: SimpleNamespace) -> None:
            super().__init__(context.card)
            if wanted.wc_flags & 4 and not self.card.wallclock:
                raise VerbsError("EOPNOTSUPP")
            self.flags = wanted.wc_flags

        def start_poll(self, attributes: object) -> int:
            return self.poll_next()

        def poll_next(self) -> int:
            if not self.card.posted or self.card.lost:
                return 2
            self.wr_id, self.status = self.card.posted.popleft(), self.card.status
            return 0

        def read_timestamp(self) -> int:
            assert not self.status
            return self.card.read()

        def read_completion_wallclock_ns(self) -> int:
            assert self.flags & 4
            return self.card.wallclock_ns

        def end_poll(self) -> None:
            assert self.wr_id

    class Pair(Closes):
        kind, qp_num = "qp", 77

        def __init__(self, domain: Domain, wanted: SimpleNamespace) -> None:
            super().__init__(domain.card)
            assert (wanted.qp_type, wanted.sq_sig_all) == (2, 1)
            if not self.card.pairs:
                raise VerbsError("EPERM")
            self.card.pair = self

        def to_rts(self, attributes: SimpleNamespace) -> None:
            assert attributes.dest_qp_num == 77
            self.attributes = attributes

        def post_send(self, request: Any) -> None:
            assert request.target == (12, 4096)
            self.card.posted.append(request.wr_id)

    class SendWR(SimpleNamespace):
        def set_wr_rdma(self, key: int, address: int) -> None:
            self.target = (key, address)

    def device_list() -> list[SimpleNamespace]:
        if not cards:
            raise VerbsError("Failed to get devices list")
        return [SimpleNamespace(name=name.encode()) for name in cards]

    modules: dict[str, dict[str, Any]] = {
        "": {},
        ".pyverbs_error": {"PyverbsError": VerbsError},
        ".device": {"Context": Context, "get_device_list": device_list},
        ".cq": {"CQEX": Queue, "CqInitAttrEx": SimpleNamespace, "PollCqAttr": SimpleNamespace},
        ".pd": {"PD": Domain},
        ".mr": {"MR": Memory},
        ".qp": {
            "QP": Pair,
            "QPCap": SimpleNamespace,
            "QPInitAttr": SimpleNamespace,
            "QPAttr": SimpleNamespace,
        },
        ".wr": {"SGE": lambda *parts: parts, "SendWR": SendWR},
        ".addr": {"GlobalRoute": SimpleNamespace, "AHAttr": SimpleNamespace},
        ".enums" if version == 44 else ".libibverbs_enums": ENUMS,
    }
    for name in (".enums", ".libibverbs_enums"):
        patch.setitem(sys.modules, f"pyverbs{name}", None)
    for name, held in modules.items():
        module = ModuleType(f"pyverbs{name}")
        module.__dict__.update(held)
        patch.setitem(sys.modules, f"pyverbs{name}", module)


def uninstall(patch: pytest.MonkeyPatch) -> None:
    """Make `import pyverbs` fail, even where it is installed."""
    for name in ("", ".device", ".pyverbs_error", ".enums", ".libibverbs_enums"):
        patch.setitem(sys.modules, f"pyverbs{name}", None)
