"""Logs: every line is one JSON object in one form, whatever wrote it and says."""

from __future__ import annotations

import asyncio
import contextvars
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from infra import log

WRITE = """
import logging
import warnings
from types import SimpleNamespace
from infra import log, temporal

log.configure_json_logging("INFO")
log.bind(request_id="r-1")
own = log.get("infra.own")
own.debug("too_low")
own.info("seen", count=3)
own.info("odd", half="\\ud800", huge=2**70, kind=int)
logging.getLogger("lib.theirs").warning("they say %s", 1, extra={"count": 4})
warnings.warn("they warn", stacklevel=1)
core = temporal._build_core_log_forwarding().forwarding
core._on_logs([SimpleNamespace(level=30, message="Poll failed", target="pollers", fields={"queue": "q"}, time=0.0)])
try:
    1 / 0
except ZeroDivisionError as error:
    own.error("broken", exc_info=error)
"""


IN_A_LOOP = """
import asyncio
import os
from infra import log

log.configure_json_logging("INFO")
own = log.get("infra.own")

async def turns():
    for turn in range(3):
        own.info("one", turn=turn)
        await asyncio.to_thread(own.info, "beside", turn=turn)
        own.info("two", turn=turn)
        await asyncio.sleep(0)
    own.info("last")
    if os.environ.get("END"):
        log.line_buffer.write_buffered()
        os._exit(0)
    await asyncio.sleep(0)

asyncio.run(turns())
own.info("after")
"""


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    """What a process wrote."""
    done = subprocess.run([sys.executable, "-c", WRITE], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_lines_hold_what_was_bound_and_told(lines: list[dict[str, Any]]) -> None:
    """Also who wrote them, when, and how grave it is; what is below the level is left out."""
    seen = next(line for line in lines if line["event"] == "seen")

    assert seen.pop("timestamp").endswith("Z")
    assert seen == {"event": "seen", "count": 3, "level": "info", "logger": "infra.own", "request_id": "r-1"}
    told = [line["event"] for line in lines if line["logger"] != "py.warnings"]
    assert told == ["seen", "odd", "they say 1", "Poll failed", "broken"]


def test_lines_of_libraries_look_like_ours(lines: list[dict[str, Any]]) -> None:
    """With their own fields."""
    theirs = next(line for line in lines if line["logger"] == "lib.theirs")

    assert (theirs["level"], theirs["count"], theirs["request_id"]) == ("warning", 4, "r-1")
    [warning] = [line for line in lines if line["logger"] == "py.warnings"]
    assert "UserWarning: they warn" in warning["event"]


def test_lines_of_the_engine_s_core_are_json_as_well(lines: list[dict[str, Any]]) -> None:
    """With their fields; by itself the SDK would write coloured text."""
    [line] = [each for each in lines if each["event"] == "Poll failed"]
    assert (line["logger"], line["level"]) == ("temporalio.core", "warning")
    assert (line["target"], line["fields"]) == ("pollers", {"queue": "q"})


def test_no_value_loses_a_line(lines: list[dict[str, Any]]) -> None:
    """Halves of surrogate pairs, huge numbers, anything at all."""
    odd = next(line for line in lines if line["event"] == "odd")

    assert (odd["half"], odd["huge"], odd["kind"]) == ("\ud800", 2**70, "<class 'int'>")


def test_errors_come_with_their_traceback(lines: list[dict[str, Any]]) -> None:
    """In one line."""
    broken = next(line for line in lines if line["event"] == "broken")

    assert "ZeroDivisionError: division by zero" in broken["exception"]


@pytest.mark.parametrize("end", ["", "at once"])
def test_lines_of_an_event_loop_are_all_written_and_in_order(end: str) -> None:
    """Those of threads, too, and what is said last before a process leaves."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_LOOP], capture_output=True, text=True, check=True, env={**os.environ, "END": end}
    )

    told = [(line["event"], line.get("turn")) for line in map(json.loads, done.stderr.splitlines())]
    turns = [(event, turn) for turn in range(3) for event in ("one", "beside", "two")]
    assert told == [*turns, ("last", None), *([] if end else [("after", None)])]


async def test_what_was_bound_ends_in_any_context() -> None:
    """As when a workflow is put away: its coroutine is closed by the garbage collector."""

    async def holding() -> None:
        with log.bind_temporarily(workflow_id="w-1"):
            await asyncio.sleep(0)

    waiting = holding()
    contextvars.copy_context().run(waiting.send, None)
    waiting.close()
