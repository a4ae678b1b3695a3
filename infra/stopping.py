"""How long a process may take to stop: what starts one waits as long before it kills it."""

from __future__ import annotations

from typing import Final

from infra.settings import Settings

REQUEST_SHUTDOWN_SECONDS: Final = 10.0
"""How long requests in progress may take to finish."""
API_STOP_SECONDS: Final = 2 * REQUEST_SHUTDOWN_SECONDS + 5.0
"""How long an API process may take to stop: aiohttp waits as long again for requests that it has cancelled."""
WORKER_STOP_MARGIN_SECONDS: Final = 5.0


def compute_worker_stop_seconds(settings: Settings) -> float:
    """Return how long a worker process may take to stop.

    A call that begins a transfer is finished after the time for activities: if its answer is lost, the file is sent
    again.
    """
    call = settings.gse.connect_timeout_seconds + settings.gse.answer_timeout_seconds
    return settings.engine.graceful_shutdown_seconds + call + WORKER_STOP_MARGIN_SECONDS
