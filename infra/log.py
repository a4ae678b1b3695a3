"""Structured logs: one JSON line an event, ids bound once, nothing secret."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import msgspec
import structlog
from structlog.typing import EventDict, FilteringBoundLogger

_encoder = msgspec.json.Encoder(enc_hook=str)
_bound: ContextVar[Mapping[str, Any]] = ContextVar("bound", default=MappingProxyType({}))

HELD_SECONDS = 0.01
"""How long a line may wait for others."""
_LEVELS: Final = {"exception": "error", "warn": "warning"}


class Outlet:
    """Standard error, written once for all lines of some milliseconds of an event loop; outside of one, at once.

    Every request writes a line. To hand each over by itself would cost more than to make it.
    """

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._due_in: asyncio.AbstractEventLoop | None = None

    def write(self, line: bytes) -> None:
        """Take a line, and see to it that it is written."""
        self._lines.append(line)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.drain()
            return
        if self._due_in is not loop:
            self._due_in = loop
            loop.call_later(HELD_SECONDS, self.drain)

    def drain(self) -> None:
        """Write what is there."""
        self._due_in = None
        lines = []
        while self._lines:
            lines.append(self._lines.popleft())
        sys.stderr.buffer.write(b"".join(lines))
        sys.stderr.buffer.flush()


outlet = Outlet()


class _Pen:
    """What structlog writes a module's lines with."""

    def __init__(self, name: str) -> None:
        self.name = name

    def write(self, line: bytes) -> None:
        outlet.write(line)

    debug = info = warning = warn = error = exception = critical = write


def configure(level: str) -> None:
    """Send our own lines straight to standard error, and those of the standard library's loggers in the same form."""
    structlog.configure(
        # Past the standard library and in one step: every request writes a line, which would cost more than to answer.
        processors=[_line],
        logger_factory=_Pen,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.processors.format_exc_info,
                structlog.stdlib.ExtraAdder(),
            ],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _text],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)


def get(name: str) -> FilteringBoundLogger:
    """The logger of a module."""
    logger: FilteringBoundLogger = structlog.get_logger(name)
    return logger


def bind(**values: Any) -> None:
    """Have all lines of the task that is running, and of those that it starts, tell this."""
    _bound.set({**_bound.get(), **values})


@contextmanager
def bound(**values: Any) -> Iterator[None]:
    """Have all lines of the body tell this."""
    before = _bound.get()
    _bound.set({**before, **values})
    try:
        yield
    finally:
        # No token: a workflow that is put away ends in another context than it began in.
        _bound.set(before)


def _line(pen: _Pen, method: str, event: EventDict) -> bytes:
    """One of our own lines."""
    if "exc_info" in event:
        event = structlog.processors.format_exc_info(pen, method, event)
    return _encoded(event, level=_LEVELS.get(method, method), logger=pen.name) + b"\n"


def _text(_logger: object, _method: str, event: EventDict) -> str:
    """A line of the standard library's."""
    return _encoded(event).decode()


def _encoded(event: EventDict, **more: str) -> bytes:
    line = {**_bound.get(), **event, **more, "timestamp": _now()}
    try:
        return _encoder.encode(line)
    except (ValueError, OverflowError, TypeError):
        # Halves of surrogate pairs, numbers of more than 64 bits: what somebody sent us is no reason to lose a line.
        return json.dumps(line, default=str, skipkeys=True).encode()


def _now() -> str:
    now = time.time()
    return f"{_second(int(now))}.{int(now % 1 * 1e6):06d}Z"


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
