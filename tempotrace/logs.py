"""Logs on stderr: one line each, for people or as JSON for machines. Importing this changes nothing."""

import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from schemas.errors import Usage

# What a LogRecord has anyway; all other attributes came in by `extra=` and are the event's own fields.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller passed as `extra=`."""
    return {name: value for name, value in vars(record).items() if name not in _OWN}


class JsonLines(logging.Formatter):
    """One JSON object a record: time (Unix seconds), level, logger, message, the event's fields, error."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": round(record.created, 6),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class HumanLines(logging.Formatter):
    """Time of day, level if it is more than information, message, fields as name=value."""

    def __init__(self) -> None:
        super().__init__(datefmt="%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        parts = [self.formatTime(record, self.datefmt)]
        if record.levelno > logging.INFO:
            parts.append(record.levelname.lower())
        parts.append(record.getMessage())
        parts += [f"{name}={value}" for name, value in fields_of(record).items()]
        if record.exc_info:
            parts.append("\n" + self.formatException(record.exc_info))
        return " ".join(parts)


def set_up(style: str | None = None, level: str | None = None, stream: TextIO | None = None) -> None:
    """Send all logs to stderr. Called once, by the command line.

    style is "human" or "json" (default: TEMPOTRACE_LOG_STYLE, else human); level a name of the logging module
    (default: TEMPOTRACE_LOG_LEVEL, else info). Raises Usage.
    """
    style = style or os.environ.get("TEMPOTRACE_LOG_STYLE") or "human"
    level = (level or os.environ.get("TEMPOTRACE_LOG_LEVEL") or "info").upper()
    if style not in {"human", "json"}:
        raise Usage(f"log style {style!r}: use human or json (TEMPOTRACE_LOG_STYLE)")
    if level not in logging.getLevelNamesMapping():
        raise Usage(f"log level {level!r}: use debug, info, warning or error (TEMPOTRACE_LOG_LEVEL)")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if style == "json" else HumanLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)


@contextmanager
def quiet(names: Iterable[str]) -> Iterator[None]:
    """Silence these loggers meanwhile."""
    loggers = [logging.getLogger(name) for name in names]
    before = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for each, level in zip(loggers, before, strict=True):
            each.setLevel(level)
