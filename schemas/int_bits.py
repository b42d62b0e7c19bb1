"""Bits of the int family's columns `report_flags` and `warnings`. Append only."""

from enum import IntFlag


class ReportFlag(IntFlag):
    """Bits of the int family's `report_flags`."""

    DROP = 1
    QUEUE = 2
    FLOW = 4  # the packet belongs to a tracked flow
    INTERMEDIATE = 8  # sent by a transit node, not by the sink
    REDIRECTED = 16  # INT was signalled by a changed destination port: perhaps not the flow's own path
    CUT = 32  # the report holds only the beginning of the packet


class IntWarning(IntFlag):
    """Bits of the int family's `warnings`: what a sender did that its format does not say."""

    REPORT_LENGTH = 1  # report length 0 although contents follow
    METADATA_LENGTH = 2  # metadata length 0 although metadata is there, or too long by the bitmap
    VERSION = 4  # the version number is not that of the layout
    INNER_TYPE = 8  # the packet is not of the type that the report names
    ZERO_TIME = 16  # the report's own ingress time is 0
    RESERVED = 32  # reserved bits are set, or instructions this version does not know
    HOP_COUNT = 64  # hops by count and hops by length differ
    INT_ABSENT = 128  # a tracked packet without INT headers that could be found
    INT_UNKNOWN = 256  # INT headers of a type or version whose stack is not read
    HOPS_EXCEEDED = 512  # INT says that hops are missing: hop or MTU limit reached
    TRAILING = 1024  # bytes follow the last report
    INNER_UNKNOWN = 2048  # the packet is neither IPv4 nor IPv6, or not readable
    UNFLAGGED = 4096  # no reason for the report is given (neither drop, queue nor flow)
    REPORT_TYPE = 8192  # a kind of report (IOAM) of which only the reporter is read
