"""Transports for tests: one whose broker can be away, slow or refusing, and one that writes to a file."""

import os
from collections import deque
from pathlib import Path

from producers.transport import Done, Headers, Sent
from schemas.errors import BrokerAway, TempoError


class ScriptedTransport:
    """Messages wait until the test lets the broker take them; then they are in `log`, in order.

    `hold`: the broker takes nothing. `silent`: it takes messages but its acknowledgements do not arrive.
    """

    def __init__(self) -> None:
        self.log: list[Sent] = []
        self.waiting: deque[tuple[Sent, Done]] = deque()
        self.unheard: deque[Done] = deque()
        self.hold = False
        self.silent = False
        self.away: TempoError | None = None
        self.refuse: TempoError | None = None
        self.purges = 0

    def check(self, topic: str) -> None:
        if self.away is not None:
            raise self.away

    def send(self, topic: str, key: bytes, value: bytes, headers: Headers, done: Done) -> None:
        self.waiting.append((Sent(topic, key, value, tuple(headers)), done))

    def poll(self, seconds: float) -> None:
        while self.waiting and not self.hold:
            if self.refuse is not None:
                # The client stops here, so that nothing overtakes the message that was refused.
                _, done = self.waiting.popleft()
                done(self.refuse)
                return
            sent, done = self.waiting.popleft()
            self.log.append(sent)
            if self.silent:
                self.unheard.append(done)
            else:
                done(None)

    def flush(self, seconds: float) -> int:
        self.poll(seconds)
        return len(self.waiting) + len(self.unheard)

    def purge(self) -> None:
        self.purges += 1
        gone = [*self.unheard, *(done for _, done in self.waiting)]
        self.unheard.clear()
        self.waiting.clear()
        for done in gone:
            done(BrokerAway("given up"))


class FileTransport:
    """The log is a file of length-prefixed values, flushed to the system before each acknowledgement."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def check(self, topic: str) -> None:
        """The topic is the file."""

    def send(self, topic: str, key: bytes, value: bytes, headers: Headers, done: Done) -> None:
        os.write(self._fd, len(value).to_bytes(4, "little") + value)
        done(None)

    def poll(self, seconds: float) -> None:
        """Everything was acknowledged at once."""

    def flush(self, seconds: float) -> int:
        return 0

    def purge(self) -> None:
        """Nothing waits."""


def read_log(path: Path) -> list[bytes]:
    """The values in a FileTransport's file; a value that a kill cut short is left out."""
    content, out, at = path.read_bytes() if path.exists() else b"", [], 0
    while at + 4 <= len(content):
        size = int.from_bytes(content[at : at + 4], "little")
        if at + 4 + size > len(content):
            break
        out.append(content[at + 4 : at + 4 + size])
        at += 4 + size
    return out
