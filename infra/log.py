"""Structured logs: one JSON line an event, ids bound once, nothing secret."""

from __future__ import annotations

import json
import logging
import sys

import msgspec
import structlog
from structlog.typing import EventDict, FilteringBoundLogger

_encoder = msgspec.json.Encoder(enc_hook=str)


def configure(level: str) -> None:
    """Send our own lines straight to standard error, and those of the standard library's loggers in the same form."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        # Past the standard library: every request writes a line, which would cost more than to answer it.
        processors=[*shared, _as_bytes],
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
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


def _as_bytes(_logger: object, _method: str, event: EventDict) -> bytes:
    try:
        return _encoder.encode(event)
    except (ValueError, OverflowError, TypeError):
        # Halves of surrogate pairs, numbers of more than 64 bits: what somebody sent us is no reason to lose a line.
        return json.dumps(event, default=str, skipkeys=True).encode()


def _as_text(logger: object, method: str, event: EventDict) -> str:
    return _as_bytes(logger, method, event).decode()
