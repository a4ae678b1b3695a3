"""Ports for the embedded parts: the wished one while it is free, else another that stays free between restarts."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Iterator

LOOPBACK = "127.0.0.1"
# Below the ephemeral ranges of Linux and macOS: a port from within them can be taken by anybody's outgoing connection
# while its part restarts, and a client that keeps dialling it may even connect to itself.
RANGE = range(20_000, 32_000)


class Ports:
    """Hands out each port once.

    Args:
        remembered: Ports of the last run by name; they are taken again when nothing else is wished.
    """

    def __init__(self, remembered: dict[str, int]) -> None:
        self._remembered = remembered
        self.chosen: dict[str, int] = {}

    def claim(self, name: str, wish: int = 0) -> int:
        """The port of a listener: the wished one, or the one of the last run, or any; the first that is free."""
        for port in self._candidates(name, wish):
            if port not in self.chosen.values() and is_free(port):
                self.chosen[name] = port
                return port
        raise OSError(errno.EADDRINUSE, f"no port between {RANGE.start} and {RANGE.stop} is free for {name}")

    def _candidates(self, name: str, wish: int) -> Iterator[int]:
        if wish:
            yield wish
        if name in self._remembered:
            yield self._remembered[name]
        # A random order, so that two starts at the same moment do not race for the same ports.
        yield from random.sample(RANGE, len(RANGE))


def is_free(port: int) -> bool:
    """Whether nobody listens on a port of the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
