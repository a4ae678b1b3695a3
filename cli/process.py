"""How every command runs and exits."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from domain.faults import Fault
from infra import log


def run(
    main: Coroutine[Any, Any, int | None], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> NoReturn:
    """Run a command, then exit at once.

    The interpreter may crash on shutdown after the Temporal client was used (sdk-python #300), so this flushes the
    output and skips the shutdown.

    Args:
        loop_factory: Creates the event loop, if not asyncio's default.
    """
    gc.enable()
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            code = runner.run(main) or 0
    except Fault as fault:
        print(f"haulage: {fault.record.sentence}", file=sys.stderr)  # noqa: T201 (output of a command)
        code = 1
    except KeyboardInterrupt:
        code = 130
    except BaseException:  # noqa: BLE001 (nothing above would handle it)
        # asyncio and typer would print it, but control does not return to them.
        sys.excepthook(*sys.exc_info())
        code = 1
    log.line_buffer.drain()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def stop_signal() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
