"""How slow this machine is just now: limits of time are multiplied by it, so that no test needs a fast machine."""

from __future__ import annotations

import time

ROUNDS = 5
TURNS = 100_000
NOMINAL_SECONDS = 0.035
"""What all rounds take on a core of a machine of the kind that this was written on, with nothing else to do."""


def measure_pace() -> float:
    """Return how many times longer a fixed computation takes now than on a free core; at least 1."""
    began = time.perf_counter()
    for _ in range(ROUNDS):
        total = 0
        for turn in range(TURNS):
            total ^= turn
        time.sleep(0)  # who waits for this core may have it: a short measurement would miss them
    return max(1.0, (time.perf_counter() - began) / NOMINAL_SECONDS)
