"""JSON values from a stream of bytes of any length, in a bounded window of text.

The standard library's scanner works on whole values; here it is pointed at one value after the other of a
text that slides over the stream. Memory is the window's: a chunk, or the longest single value.
"""

import codecs
import hashlib
import json
import math
import re
from collections.abc import Callable
from typing import IO, Any, Final

from schemas.errors import MalformedInput

CHUNK_BYTES: Final = 1 << 20
VALUE_CHARS_MAX: Final = 64 << 20  # a single event or table longer than this is no trace
_DECODER: Final = json.JSONDecoder(strict=False)  # control characters in strings are met and do no harm
# Python refuses to make a number of thousands of digits; here such a one is infinite, and its event is counted.
_LENIENT: Final = json.JSONDecoder(
    strict=False, parse_int=lambda digits: int(digits) if len(digits) < 400 else math.inf
)
_NEXT: Final = re.compile(r"[ \t\n\r]*([,\]])[ \t\n\r]*")
_BLANK: Final = re.compile(r"[ \t\n\r]*")
Scan = Callable[[str, int], tuple[Any, int]]


class JsonWindow:
    """A window of text that slides over a stream of UTF-8 bytes.

    `digest` is fed with all bytes that were read; `at` is the place of the next character in `text`.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._passed = 0
        self.digest = hashlib.blake2b(digest_size=16)
        self.text = ""
        self.at = 0
        self.ended = False
        self._scan: Scan = _DECODER.scan_once  # type: ignore[attr-defined]  # lives in C, untyped
        self._lenient: Scan = _LENIENT.scan_once  # type: ignore[attr-defined]  # as above

    def more(self) -> None:
        """Drop what is passed and read on, at least as much as is held, so that growth stays linear."""
        held = len(self.text) - self.at
        data = self._stream.read(max(CHUNK_BYTES, held))
        self.digest.update(data)
        self.ended = not data
        self._passed += self.at
        self.text = self.text[self.at :] + self._decoder.decode(data, final=self.ended)
        self.at = 0

    def peek(self) -> str:
        """The next character that is not blank, without passing it; empty at the end."""
        while True:
            blank = _BLANK.match(self.text, self.at)
            assert blank is not None, "the pattern matches the empty text"
            self.at = blank.end()
            if self.at < len(self.text) or self.ended:
                return self.text[self.at : self.at + 1]
            self.more()

    def expect(self, char: str) -> None:
        """Pass this character. Raises MalformedInput if another one comes next."""
        if self.peek() != char:
            raise self.wrong(f"{char!r} was expected")
        self.at += 1

    def value(self) -> Any:
        """The JSON value at the next character. Raises MalformedInput."""
        self.peek()
        while True:
            try:
                value, end = self._value()
            except RecursionError:
                raise self.wrong("values are nested too deeply") from None
            except (StopIteration, ValueError) as error:
                # Whether a value is wrong or only cut by the window shows when there is no more text.
                if self.ended or len(self.text) - self.at > VALUE_CHARS_MAX:
                    why = getattr(error, "msg", "") or "a value was expected"
                    raise self.wrong(why[:1].lower() + why[1:]) from None
                self.more()
                continue
            if end == len(self.text) and not self.ended:
                self.more()  # a number may go on
                continue
            self.at = end
            return value

    def _value(self) -> tuple[Any, int]:
        try:
            return self._scan(self.text, self.at)
        except json.JSONDecodeError:
            raise
        except ValueError:  # too many digits
            return self._lenient(self.text, self.at)

    def wrong(self, what: str) -> MalformedInput:
        """The error that says what is wrong at this place."""
        place = self._passed + self.at
        if self.ended and self.at >= len(self.text):
            return MalformedInput("the JSON is cut short", f"character {place}")
        return MalformedInput(f"invalid JSON: {what}", f"character {place}")

    def items(self, use: Callable[[Any], None]) -> None:
        """Give each value of the list whose bracket has been passed to `use`, and pass the closing one.

        This is the hot loop of reading a trace. Raises MalformedInput.
        """
        if self.peek() == "]":
            self.at += 1
            return
        scan = self._scan
        while True:
            window, at = self.text, self.at
            while True:
                try:
                    value, end = scan(window, at)
                except (StopIteration, ValueError, RecursionError):
                    break
                after = _NEXT.match(window, end)
                if after is None:
                    break
                use(value)
                at = after.end()
                if after[1] == "]":
                    self.at = at
                    return
            # The window's end cuts this value or what follows it (or it is wrong): go on by the slow way.
            self.at = at
            use(self.value())
            if self.peek() == "]":
                self.at += 1
                return
            self.expect(",")
