"""Dead letters of noise are rationed, and add up."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from producers.int.letters import INTERVAL_NS, KEYS_MAX, OTHERS, WHOLE, Letters, Malformed
from schemas.records import DeadLetter

T0 = 1_790_000_000_000_000_000
Sent = tuple[str, str, int, int]  # reason, sender, port, stamp in ns


def letters_of(sent: Iterable[Sent]) -> list[DeadLetter]:
    book = Letters("fabric", "udp 0.0.0.0")
    out: list[DeadLetter] = []
    for place, (reason, sender, port, stamp_ns) in enumerate(sent):
        whole = Malformed(reason, "why", sender, port, stamp_ns, place, b"noise")
        out += book.take(reason, sender, port, stamp_ns, partial(replace, whole))
    return [*out, *book.end()]


def test_the_first_come_whole_and_the_others_as_a_number() -> None:
    letters = letters_of([("too short", "10.0.0.1", 9000, T0 + n * 1_000_000) for n in range(5000)])
    assert [(letter.inputs, letter.payload, letter.offset) for letter in letters] == [
        *((1, b"noise", n) for n in range(WHOLE)),
        (5000 - WHOLE, b"", -1),
    ]
    last = letters[-1]
    assert (last.reason, last.topic, last.events) == ("too short", "udp 0.0.0.0:9000", 0)
    assert last.append_ms == T0 // 1_000_000 + 4999
    assert last.detail == "4996 more datagrams like the last 4, counted and not kept; from 10.0.0.1"


def test_each_interval_reason_sender_and_port_has_its_own_ration() -> None:
    kinds = [("a", "x", 1), ("b", "x", 1), ("a", "y", 1), ("a", "x", 2)]
    sent = [(*kind, T0 + turn * INTERVAL_NS) for turn in range(3) for kind in kinds for _ in range(WHOLE)]
    assert [letter.inputs for letter in letters_of(sent)] == [1] * len(sent)


def test_a_clock_set_back_ends_the_interval() -> None:
    sent = [("a", "x", 1, T0)] * (WHOLE + 2) + [("a", "x", 1, T0 - 1)] * (WHOLE + 3)
    assert [letter.inputs for letter in letters_of(sent)] == [*[1] * WHOLE, 2, *[1] * WHOLE, 3]


def test_forged_senders_share_one_ration() -> None:
    senders = 10_000
    letters = letters_of([("a", f"10.0.{n >> 8}.{n & 255}", 9000, T0 + n) for n in range(senders)])
    assert len(letters) == KEYS_MAX + WHOLE + 1
    assert sum(letter.inputs for letter in letters) == senders
    assert letters[-1].detail.endswith(f"from {OTHERS}")
    assert letters[-1].topic == "udp 0.0.0.0"


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"), st.integers(0, 60).map(str), st.integers(1, 2),
            st.integers(0, 3 * INTERVAL_NS).map(lambda ns: T0 + ns),
        ),
        max_size=400,
    )
)  # fmt: skip
def test_letters_add_up(sent: list[Sent]) -> None:
    counted: Counter[str] = Counter()
    for letter in letters_of(sent):
        counted[letter.reason] += letter.inputs
    assert counted == Counter(reason for reason, *_ in sent)


def test_what_is_due_comes_with_the_heartbeats() -> None:
    book = Letters("fabric", "udp")
    for n in range(WHOLE + 5):
        list(book.take("a", "x", 1, T0 + n, lambda: Malformed("a", "why", "x", 1, T0, -1, b"noise")))
    assert list(book.due(T0 + INTERVAL_NS - 1)) == []
    assert [letter.inputs for letter in book.due(T0 + INTERVAL_NS)] == [5]
    assert [*book.due(T0 + 9 * INTERVAL_NS), *book.end()] == []
