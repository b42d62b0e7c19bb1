"""The code tables of the packed columns' small integers.

Append only: a code that was ever written keeps its meaning.
"""

from enum import IntEnum


class GpuKind(IntEnum):
    CPU_OP = 0
    RUNTIME = 1
    DRIVER = 2
    KERNEL = 3
    MEMCPY = 4
    MEMSET = 5
    ANNOTATION = 6
    GPU_ANNOTATION = 7
    SYNC = 8
    COLLECTIVE = 9  # a collective kernel on a device
    PYTHON = 10
    OTHER = 11


class ProbeKind(IntEnum):
    SEND = 0
    RECEIVE = 1


class ClockKindOfRow(IntEnum):
    SERVO = 0  # one offset as the servo saw it
    SUMMARY = 1  # rms/max over an interval
    STATE = 2  # a port or daemon changed state
    TRACKING = 3  # chrony's tracking log
    MEASUREMENT = 4  # one exchange with one server
    STATISTICS = 5  # chrony's regression over several exchanges
    EVENT = 6  # clockcheck, best master, holdover and the like
    READ = 7  # a clock that runs free, read between two readings of its parent: offset to their middle, delay between


class HopKind(IntEnum):
    HOP = 0
    DROP = 1
    QUEUE = 2


class FabricKind(IntEnum):
    COUNTER = 0  # what crossed a port between two readings of its counters
    FLOW = 1  # a flow that a host has
    HOP = 2  # a half-link on the path of a flow, walked or computed


class SportSource(IntEnum):
    UNKNOWN = 0
    CAPTURED = 1  # seen in the flow's own packets
    SET = 2  # the host's configuration or the application states it
    FORMULA = 3  # by the kernel's formula from the queue pairs: a host may have set another


class CounterState(IntEnum):
    OK = 0
    FIRST = 1  # no earlier reading to compare with
    WRAPPED = 2
    RESET = 3  # smaller than before, and no wrap explains it
    SATURATED = 4  # the counter stuck at its greatest value
    UNSUPPORTED = 5  # the device does not count it


class Control(IntEnum):
    OPEN = 0
    TICK = 1
    FLUSH = 2
    POLICY = 3
    LOSS = 4


class EdgeKind(IntEnum):
    MESSAGE = 0
    LAUNCH = 1
    SYNC = 2
    PACKET = 3
    COLLECTIVE = 4


class Role(IntEnum):
    CAUSE = 0
    EFFECT = 1
    MEMBER = 2
    ROOT = 3


class Point(IntEnum):
    BEGIN = 0
    END = 1
    BOTH = 2


class Op(IntEnum):
    NONE = 0
    ALL_REDUCE = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    BARRIER = 4
    BROADCAST = 5
    SCATTER = 6
    REDUCE = 7
    GATHER = 8
    ALL_TO_ALL = 9
    SEND = 10
    RECV = 11
    UNKNOWN = 12


class Verdict(IntEnum):
    CONCURRENT = 0
    INFERRED = 1
    PROVEN = 2
    VIOLATED = 3


class ClockKind(IntEnum):
    FREE = 0
    PTP_HW = 1
    PTP_SW = 2
    NTP = 3
    GPU_MAPPED = 4
    SWITCH_LOCAL = 5


class Status(IntEnum):
    UNKNOWN = 0
    LOCKED = 1
    HOLDOVER = 2
    FREERUN = 3
    STEPPED = 4


class Timescale(IntEnum):
    ARBITRARY = 0
    TAI = 1
    UTC = 2
    UTC_SMEARED = 3


class Assurance(IntEnum):
    CLAIMED = 0
    STATISTICAL = 1
    HARD = 2


class StampKind(IntEnum):
    APPLICATION = 0
    KERNEL = 1
    HARDWARE = 2


class PathSource(IntEnum):
    OBSERVED = 0
    OBSERVED_PROBE = 1
    WALKED = 2
    COMPUTED = 3
    CANDIDATES = 4


class Measure(IntEnum):
    FLOWS = 0  # what is spread over links: flows
    BYTES = 1


class NullMethod(IntEnum):
    EXACT = 0
    DRAWN = 1
    NORMAL = 2


class Evenness(IntEnum):
    LIKE_RANDOM = 0
    WORSE_THAN_RANDOM = 1
    BETTER_THAN_RANDOM = 2


class Hotspot(IntEnum):
    COLLISION = 0  # elephants want more of the link than it has
    HOT = 1  # among the links that need longest for their bytes
    IDLE = 2  # nothing on it, though keys were hashed over its group


class UnitSource(IntEnum):
    UNKNOWN = 0
    CONFIGURED = 1
    ESTIMATED = 2
