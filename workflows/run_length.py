"""How long a run of a workflow may get before it continues as new."""

from __future__ import annotations

from temporalio import workflow

RUN_EVENTS_MAX = 1_000
"""A worker that takes a run over replays all its events, and has to be done within the time-out of one workflow task.

Four thousand, which the engine suggests, took 3.4 s of processor on a slow machine: under load every attempt ran out
of time, on one worker after the other, and the workflow did not go on.
"""


def is_run_long() -> bool:
    """Return whether this run should continue as new."""
    info = workflow.info()
    return info.is_continue_as_new_suggested() or info.get_current_history_length() >= RUN_EVENTS_MAX
