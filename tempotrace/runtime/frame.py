"""What a commit keeps of a task: the task's own snapshot, framed with what makes it safe to go on from.

    magic "TTS1" · u32 length of the header · header (JSON) · references (int64, n × 4) · the task's snapshot

The header holds the offsets after the last records processed, the topic ids (a topic that was deleted and
made again has the same name but another log) and how many references follow. A reference names rows of an
input record that the task still holds; they are read from the log again rather than kept twice.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from schemas.errors import MalformedInput
from schemas.processor import Ref

MAGIC: Final = b"TTS1"
_LENGTH: Final = struct.Struct("<I")


@dataclass(frozen=True)
class Frame:
    """Where a task stands: by input topic the next offset and the topic's id, and the rows it still holds."""

    next_offset: Mapping[str, int]
    topic_ids: Mapping[str, str]
    refs: Sequence[Ref] = ()


def pack(frame: Frame, snapshot: bytes) -> bytes:
    """Frame and snapshot as one run of bytes."""
    topics = sorted(frame.topic_ids)
    header = {
        "next_offset": dict(frame.next_offset),
        "topic_ids": {topic: frame.topic_ids[topic] for topic in topics},
        "refs": len(frame.refs),
    }
    text = json.dumps(header, separators=(",", ":"), sort_keys=True).encode()
    numbers = [(topics.index(ref.topic), ref.offset, ref.first, ref.last) for ref in frame.refs]
    return b"".join((MAGIC, _LENGTH.pack(len(text)), text, np.array(numbers, "<i8").tobytes(), snapshot))


def unpack(kept: bytes) -> tuple[Frame, bytes]:
    """Inverse of pack. Raises MalformedInput."""
    if kept[:4] != MAGIC or len(kept) < 8:
        raise MalformedInput("not a kept state (TTS1 expected)", "byte 0")
    (length,) = _LENGTH.unpack_from(kept, 4)
    try:
        header = json.loads(kept[8 : 8 + length])
        count = int(header["refs"])
        topics = sorted(header["topic_ids"])
        begin = 8 + length
        numbers = np.frombuffer(kept, "<i8", count * 4, begin).reshape(count, 4).tolist()
        refs = [Ref(topics[topic], offset, first, last) for topic, offset, first, last in numbers]
        frame = Frame(header["next_offset"], header["topic_ids"], refs)
    except (ValueError, KeyError, TypeError, IndexError, UnicodeDecodeError) as error:
        raise MalformedInput(f"a kept state is broken: {error}", "header") from None
    return frame, kept[begin + count * 32 :]
