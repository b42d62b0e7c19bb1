"""Which operation and group a collective kernel belongs to, and which kernels of the ranks are one."""

from collections import Counter
from typing import Any

import pytest

from producers.gpu import alignment, collectives
from producers.gpu.collectives import ASSUMED_GROUP, Member, operation
from schemas.columns import Op
from schemas.pack import Group
from tests.gpu_traces import Event, call, launched, launches, span, trace, work

WORLD = Group(ASSUMED_GROUP, 2, (0, 1))
PAIR = Group("tp", 2, (4, 6))


def members(events: list[Event], rank: int | None = 0, world: int | None = 2, **header: Any) -> list[Member]:
    found, started = launches(trace(events, rank, world, **header))
    return collectives.members(0, found, started.call)


def one(events: list[Event], rank: int | None = 0, world: int | None = 2, **header: Any) -> Member:
    (found,) = members(events, rank, world, **header)
    return found


def kernel(name: str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL", **args: Any) -> list[Event]:
    return launched(name, 10, 14, 5, 3, 84, **args)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("nccl:all_reduce", Op.ALL_REDUCE),
        ("nccl:all_reduce_coalesced", Op.ALL_REDUCE),
        ("nccl:all_reduce_barrier", Op.BARRIER),
        ("nccl:_all_gather_base", Op.ALL_GATHER),
        ("nccl:all_gather_into_tensor_coalesced", Op.ALL_GATHER),
        ("nccl:_reduce_scatter_base", Op.REDUCE_SCATTER),
        ("nccl:reduce_scatter_tensor_coalesced", Op.REDUCE_SCATTER),
        ("nccl:broadcast", Op.BROADCAST),
        ("nccl:_broadcast_oop", Op.BROADCAST),
        ("nccl:reduce", Op.REDUCE),
        ("nccl:gather", Op.GATHER),
        ("nccl:scatter", Op.SCATTER),
        ("nccl:all_to_all", Op.ALL_TO_ALL),
        ("all_to_allv", Op.ALL_TO_ALL),
        ("nccl:send 0->1", Op.SEND),
        ("nccl:recv 1<-0", Op.RECV),
        ("nccl:barrier", Op.BARRIER),
        ("nccl:coalesced", Op.UNKNOWN),
        ("", Op.UNKNOWN),
    ],
)
def test_operation_of_a_span(text: str, want: Op) -> None:
    assert want == operation(text)


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", Op.ALL_REDUCE),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Op.ALL_GATHER),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", Op.REDUCE_SCATTER),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", Op.REDUCE),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t", Op.BROADCAST),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", Op.ALL_REDUCE),
        ("ncclSymDevKernel_AllGather_LL", Op.ALL_GATHER),
    ],
)
def test_operation_of_a_kernel_is_in_its_name(name: str, want: Op) -> None:
    found = one([span("nccl:barrier", 5, 20), *kernel(name)])
    assert want == found.op


@pytest.mark.parametrize(
    "name", ["ncclKernel_SendRecv_RING_SIMPLE", "ncclDevKernel_Generic_4", "ncclSendRecvKernel_copy"]
)
def test_operation_of_a_shared_kernel_is_the_innermost_spans(name: str) -> None:
    assert (
        one([span("nccl:coalesced", 1, 30), span("nccl:all_to_all", 5, 20), *kernel(name)]).op
        == Op.ALL_TO_ALL
    )
    assert one([span("nccl:all_to_all", 5, 6), *kernel(name)]).op == Op.UNKNOWN  # ends before the launch does
    assert one([span("nccl:all_to_all", 5, 20, tid=2), *kernel(name)]).op == Op.UNKNOWN  # another thread's
    assert one([span("forward", 5, 20), *kernel(name)]).op == Op.UNKNOWN
    assert one([work(name, 14, 5, 3, 84)]).op == Op.UNKNOWN  # nobody saw its launch
    assert one([work(name, 14, 5, 3, 84, Collective_name="all_to_allv")]).op == Op.ALL_TO_ALL


def test_group_of_an_old_trace_is_all_ranks_and_assumed() -> None:
    found = one(kernel())
    assert (found.group, found.assumed) == (WORLD, True)
    assert one(kernel(), rank=5).group is None  # no member of a world of two
    assert one(kernel(), world=None).group is None
    assert members(kernel(), rank=None) == []


@pytest.mark.parametrize(
    ("args", "want"),
    [
        ({"Process Group Name": "tp", "Process Group Ranks": "[4, 6]", "Group size": 2}, PAIR),
        ({"Process Group Name": "tp", "Process Group Ranks": [4, 6]}, PAIR),
        ({"Process Group Name": "tp", "Process Group Ranks": "[4, ...]", "Group size": 2}, None),
        ({"Process Group Name": "tp", "Process Group Ranks": "[4, 6]", "Group size": 3}, None),
        ({"Process Group Name": "tp", "Process Group Ranks": "[5, 6]"}, None),  # rank 4 is no member
        ({"Process Group Name": "tp", "Process Group Ranks": "[4, 4]"}, None),
        ({"Process Group Name": "tp", "Process Group Ranks": "[4, 6"}, None),
        ({"Process Group Name": "tp", "Process Group Ranks": "__import__('os')"}, None),
        ({"Process Group Name": "tp"}, None),
        ({"Process Group Name": "listed", "Process Group Ranks": "[4, ...]"}, Group("listed", 2, (4, 7))),
        (
            {"Process Group Name": "tp", "Global rank start": 4, "Global rank stride": 2, "Group size": 2},
            PAIR,
        ),
        ({"Process Group Name": "tp", "Global rank start": 4, "Group size": 2}, None),
        ({"Process Group Name": "all", "Group size": 8}, Group("all", 8, tuple(range(8)))),
        ({"Group size": 2}, None),
    ],
)
def test_group_is_what_the_trace_states_in_full(args: dict[str, Any], want: Group | None) -> None:
    events = kernel()
    events[1]["args"] |= args
    content = trace(events, 4, 8)
    content["distributedInfo"]["pg_config"] = [{"pg_name": "listed", "pg_size": 2, "ranks": [4, 7]}]
    found, started = launches(content)
    (member,) = collectives.members(0, found, started.call)
    assert (want, False) == (member.group, member.assumed)


def test_bytes_and_splits() -> None:
    args = {
        "Process Group Name": "tp", "Process Group Ranks": "[4, 6]",
        "In msg nelems": 30, "Out msg nelems": 20,
        "dtype": "BFloat16", "In split size": "[1, 2]",
    }  # fmt: skip
    events = kernel("ncclDevKernel_SendRecv", Collective_name="all_to_allv")
    events[1]["args"] |= args
    found = one(events, 4, 8)
    assert found.values == {"bytes": 60, "bytes_out": 40, "bytes_to_4": 20, "bytes_to_6": 40}
    assert not found.splits_unknown
    events[1]["args"]["In split size"] = "[1, ...]"
    cut = one(events, 4, 8)
    assert cut.values == {"bytes": 60, "bytes_out": 40}
    assert cut.splits_unknown


def test_bytes_of_an_old_trace_are_the_spans_input() -> None:
    events = [span("nccl:all_reduce", 5, 20, Input_Dims=[[10, 3]], Input_type=["float"]), *kernel()]
    assert one(events).values == {"bytes": 120}
    events[0]["args"]["Input type"] = ["a type of tomorrow"]
    assert (one(events).elements, one(events).values) == (30, {})
    events[0]["args"]["Input Dims"] = [[10, "x"]]
    assert one(events).elements is None


def test_peers_of_a_send_are_ranks_of_the_job() -> None:
    group = {"Process Group Name": "pp", "Process Group Ranks": "[4, 6]"}
    sent = kernel("ncclDevKernel_SendRecv")
    sent[1]["args"] |= group
    sent.insert(0, span("nccl:send 0->1", 5, 20))
    assert one(sent, 4, 8).peers == (4, 6)
    got = kernel("ncclDevKernel_SendRecv")
    got[1]["args"] |= group | {"Src Rank": 4}
    got.insert(0, span("nccl:recv 1<-0", 5, 20))
    assert (one(got, 6, 8).peers, one(got, 6, 8).op) == ((4, 6), Op.RECV)
    sent[0]["name"] = "nccl:send 0->9"
    assert (one(sent, 4, 8).peers, one(sent, 4, 8).op) == (None, Op.UNKNOWN)


def chain(*tokens: str) -> list[tuple[Op, int | None]]:
    """A letter an operation: r all-reduce, a all-to-all, with the number of elements behind it."""
    ops = {"r": Op.ALL_REDUCE, "a": Op.ALL_TO_ALL}
    return [(ops[text[0]], int(text[1:]) if text[1:] else None) for text in tokens]


@pytest.mark.parametrize(
    ("other", "want"),
    [
        (chain("r1", "a", "r2", "r1"), 0),
        (chain("a", "r2"), 1),
        (chain("r2", "r1"), 2),
        (chain("r1"), None),  # fits twice
        (chain("r3"), None),
        (chain("a", "r1"), None),
    ],
)
def test_a_chain_counts_where_it_fits_once(other: list[tuple[Op, int | None]], want: int | None) -> None:
    found = alignment.align({(0, 7): chain("r1", "a", "r2", "r1"), (1, 9): other})
    assert found[0, 7] == (0, 0)
    assert (None if want is None else (0, want)) == found.get((1, 9))


def test_a_reference_may_be_the_shorter_chain_of_several() -> None:
    chains = {(0, 1): chain("r1"), (0, 2): chain("a", "a", "a"), (1, 5): chain("r9", "r1")}
    assert alignment.align(chains) == {(0, 1): (0, 0), (0, 2): (1, 0), (1, 5): (0, -1)}


def test_lanes_of_equal_content_are_told_apart_by_nothing() -> None:
    chains = {(0, 1): chain("r1"), (0, 2): chain("r1"), (1, 1): chain("r1"), (1, 2): chain("r1")}
    assert alignment.align(chains) == {(0, 1): (0, 0), (0, 2): (1, 0)}
    shared = {(0, 1): chain("r1", "r2"), (1, 1): chain("r1"), (1, 2): chain("r2")}
    assert alignment.align(shared) == {(0, 1): (0, 0)}


def test_repeated_codes_are_found_at_whole_places_only() -> None:
    chains = {(0, 1): chain(*["r1"] * 4), (1, 1): chain(*["r1"] * 4), (2, 1): chain(*["r1"] * 3)}
    assert alignment.align(chains) == {(0, 1): (0, 0), (1, 1): (0, 0)}


def member(rank: int, at: int, op: Op = Op.ALL_REDUCE, group: Group | None = WORLD, **own: Any) -> Member:
    return Member(
        trace=rank, row=at, rank=rank, lane=0, begin_ns=at, op=op, group=group, assumed=group == WORLD, **own
    )


def test_a_sequence_number_is_no_assumption_and_needs_no_alignment() -> None:
    unmatched: Counter[str] = Counter()
    group = Group("dp", 2, (0, 1))
    found = alignment.match(
        [
            member(0, 1, group=group, sequence=8),
            member(0, 2, group=group, sequence=8),
            member(1, 9, group=group, sequence=8),
        ],
        unmatched,
    )
    first, second, other = sorted(found, key=lambda each: each.member.begin_ns)
    assert first.identity == other.identity != second.identity
    assert not any(each.assumed for each in found)
    assert not unmatched


def test_what_cannot_be_placed_is_counted_by_reason() -> None:
    unmatched: Counter[str] = Counter()
    alignment.match(
        [
            member(0, 1, group=None),
            member(0, 2, Op.UNKNOWN),
            member(0, 3),
            member(1, 1, Op.ALL_TO_ALL),
            member(0, 4, Op.UNKNOWN, group=Group("dp", 1, (0,)), sequence=1),
        ],
        unmatched,
    )
    assert unmatched == {"group unknown": 1, "operation unknown": 2, "no unique alignment": 1}


def test_an_all_to_all_without_splits_is_assumed_even_with_a_number() -> None:
    group = Group("ep", 2, (0, 1))
    known = member(0, 1, Op.ALL_TO_ALL, group, sequence=1, values={"bytes_to_0": 1.0, "bytes_to_1": 1.0})
    unknown = member(0, 2, Op.ALL_TO_ALL, group, sequence=2)
    found = alignment.match([known, unknown], Counter())
    assert [each.assumed for each in found] == [False, True]


def test_a_root_counts_if_the_members_agree() -> None:
    group = Group("dp", 2, (0, 1))
    same = [member(rank, 1, Op.BROADCAST, group, sequence=1, root=1) for rank in (0, 1)]
    assert [each.member.root for each in alignment.match(same, Counter())] == [1, 1]
    each_its_own = [member(rank, 1, Op.BROADCAST, group, sequence=1, root=rank) for rank in (0, 1)]
    assert [each.member.root for each in alignment.match(each_its_own, Counter())] == [None, None]


def test_sends_and_receives_align_by_pair() -> None:
    group = Group("pp", 3, (0, 1, 2))
    sends = [member(0, at, Op.SEND, group, peers=(0, 1), elements=at) for at in (1, 2)]
    other = member(0, 3, Op.SEND, group, peers=(0, 2), elements=9)
    gets = [member(1, at + 10, Op.RECV, group, peers=(0, 1), elements=at) for at in (1, 2)]
    found = alignment.match([*sends, other, *gets], Counter())
    by_row = {(each.member.rank, each.member.row): each.identity for each in found}
    assert by_row[0, 1] == by_row[1, 11]
    assert by_row[0, 2] == by_row[1, 12]
    assert len(set(by_row.values())) == 3


def test_launch_of_a_kernel_is_found_by_its_correlation() -> None:
    events = [span("nccl:all_to_all", 5, 20), call("cudaLaunchKernelExC", 7, 3, 3)]
    events.append(work("ncclKernel_SendRecv", 14, 5, 3, 84))
    assert one(events).op == Op.ALL_TO_ALL
