"""Structured logs: one JSON line an event, with the fields that are bound to the running task."""

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

BUFFER_SECONDS = 0.01
"""How long a line may wait for others."""
_LEVELS: Final = {"exception": "error", "warn": "warning"}


class BufferedLogWriter:
    """Write lines to standard error: within an event loop once for all lines of some milliseconds, otherwise at once.

    Every request logs a line, and a system call for each would cost more than to format it.
    """

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._due_in: asyncio.AbstractEventLoop | None = None

    def buffer_and_schedule_write(self, line: bytes) -> None:
        """Buffer a line, and schedule the write."""
        self._lines.append(line)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.write_buffered()
            return
        if self._due_in is not loop:
            self._due_in = loop
            loop.call_later(BUFFER_SECONDS, self.write_buffered)

    def write_buffered(self) -> None:
        """Write the buffered lines."""
        self._due_in = None
        lines = []
        while self._lines:
            lines.append(self._lines.popleft())
        sys.stderr.buffer.write(b"".join(lines))
        sys.stderr.buffer.flush()


line_buffer = BufferedLogWriter()


class _LineLogger:
    """The logger of a module, as structlog calls it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def write(self, line: bytes) -> None:
        line_buffer.buffer_and_schedule_write(line)

    debug = info = warning = warn = error = exception = critical = write


def _make_logger_class(level: str) -> type[Any]:
    """Return structlog's logger of a level, whose `info` renders the line itself: that halves what a line costs."""
    base: type[Any] = structlog.make_filtering_bound_logger(level)
    if logging.getLevelNamesMapping()[level.upper()] > logging.INFO:
        return base

    class InfoLogger(base):  # type: ignore[misc]
        def info(self, event: str, *args: Any, **fields: Any) -> Any:
            # Tests put processors of their own into the list.
            if args or self._context or self._processors[0] is not _render_structlog_line or "exc_info" in fields:
                return super().info(event, *args, **fields)
            fields["event"] = event
            line = _encode_line(fields, level="info", logger=self._logger.name)
            return self._logger.write(line + b"\n")

    return InfoLogger


def configure_json_logging(level: str) -> None:
    """Write the lines of structlog, and those of the standard library's loggers, to standard error in the same form."""
    structlog.configure(
        # One processor, and not the standard library: every request logs a line, which could cost more than to answer.
        processors=[_render_structlog_line],
        logger_factory=_LineLogger,
        wrapper_class=_make_logger_class(level),
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
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _render_standard_line],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    # Libraries warn in plain text, which what reads the lines would not understand.
    logging.captureWarnings(capture=True)


def get(name: str) -> FilteringBoundLogger:
    """Return the logger of a module."""
    logger: FilteringBoundLogger = structlog.get_logger(name)
    return logger


def bind(**values: Any) -> None:
    """Add fields to all lines of the running task and of the tasks that it starts."""
    _bound.set({**_bound.get(), **values})


def get_bound_field(name: str) -> Any:
    """Return a field that is bound to the running task; None if there is none."""
    return _bound.get().get(name)


@contextmanager
def bind_temporarily(**values: Any) -> Iterator[None]:
    """Add fields to all lines that are logged while the body runs."""
    before = _bound.get()
    _bound.set({**before, **values})
    try:
        yield
    finally:
        # No token: a workflow that is evicted ends in another context than it began in.
        _bound.set(before)


def _render_structlog_line(logger: _LineLogger, method: str, event: EventDict) -> bytes:
    """Render a line of structlog."""
    if "exc_info" in event:
        event = structlog.processors.format_exc_info(logger, method, event)
    return _encode_line(event, level=_LEVELS.get(method, method), logger=logger.name) + b"\n"


def _render_standard_line(_logger: object, _method: str, event: EventDict) -> str:
    """Render a line of the standard library."""
    return _encode_line(event).decode()


def _encode_line(event: EventDict, **more: str) -> bytes:
    line = {**_bound.get(), **event, **more, "timestamp": _format_now()}
    try:
        return _encoder.encode(line)
    except (ValueError, OverflowError, TypeError):
        # Halves of surrogate pairs and numbers of more than 64 bits come from outside, and must not lose a line.
        return json.dumps(line, default=str, skipkeys=True).encode()


def _format_now() -> str:
    now = time.time()
    return f"{_format_second(int(now))}.{int(now % 1 * 1e6):06d}Z"


@lru_cache(maxsize=2)
def _format_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
