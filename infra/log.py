"""Structured logs: one JSON line an event, ids bound once, nothing secret."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections import deque
from datetime import UTC, datetime
from functools import lru_cache

import msgspec
import structlog
from structlog.typing import EventDict, FilteringBoundLogger

_encoder = msgspec.json.Encoder(enc_hook=str)

HELD_SECONDS = 0.01
"""How long a line may wait for others."""


class Outlet:
    """Standard error, written once for all lines of some milliseconds of an event loop; outside of one, at once.

    Every request writes a line. To hand each over by itself would cost more than to make it.
    """

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._due_in: asyncio.AbstractEventLoop | None = None

    def write(self, line: bytes) -> None:
        """Take a line."""
        self._lines.append(line)

    def flush(self) -> None:
        """See to it that it is written."""
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


def configure(level: str) -> None:
    """Send our own lines straight to standard error, and those of the standard library's loggers in the same form."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        _stamp,
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        # Past the standard library: every request writes a line, which would cost more than to answer it.
        processors=[*shared, _as_bytes],
        logger_factory=structlog.BytesLoggerFactory(outlet),  # type: ignore[arg-type] # it writes and flushes, no more
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _as_text],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)


def get(name: str) -> FilteringBoundLogger:
    """The logger of a module."""
    logger: FilteringBoundLogger = structlog.get_logger(name)
    return logger


def _stamp(_logger: object, _method: str, event: EventDict) -> EventDict:
    now = time.time()
    event["timestamp"] = f"{_second(int(now))}.{int(now % 1 * 1e6):06d}Z"
    return event


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _as_bytes(_logger: object, _method: str, event: EventDict) -> bytes:
    try:
        return _encoder.encode(event)
    except (ValueError, OverflowError, TypeError):
        # Halves of surrogate pairs, numbers of more than 64 bits: what somebody sent us is no reason to lose a line.
        return json.dumps(event, default=str, skipkeys=True).encode()


def _as_text(logger: object, method: str, event: EventDict) -> str:
    return _as_bytes(logger, method, event).decode()
