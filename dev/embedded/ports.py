"""Ports for the embedded parts: the wished one while it is free, else another that stays free between restarts."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

LOOPBACK = "127.0.0.1"
# Below the ephemeral ranges of Linux and macOS: a port from within them can be taken by anybody's outgoing connection
# while its part restarts, and a client that keeps dialling it may even connect to itself.
RANGE = range(20_000, 32_000)


class Ports:
    """Hands out each port once, to one supervisor of this user at a time.

    Nobody listens on a port before its part serves, nor while its part restarts. A lock on a file named like the port
    keeps another supervisor that starts in such a moment from taking it; the lock goes with the process.

    Args:
        remembered: Ports of the last run by name; they are taken again when nothing else is wished.
        locks: What closes the files of the locks.
    """

    def __init__(self, remembered: dict[str, int], locks: ExitStack) -> None:
        self._remembered = remembered
        self._locks = locks
        self.chosen: dict[str, int] = {}

    def claim(self, name: str, wish: int = 0) -> int:
        """The port of a listener: the wished one, or the one of the last run, or any; the first that is free."""
        for port in self._candidates(name, wish):
            if port not in self.chosen.values() and is_free(port) and self._lock(port):
                self.chosen[name] = port
                return port
        raise OSError(errno.EADDRINUSE, f"no port between {RANGE.start} and {RANGE.stop} is free for {name}")

    def _candidates(self, name: str, wish: int) -> Iterator[int]:
        if wish:
            yield wish
        if name in self._remembered:
            yield self._remembered[name]
        # Not shuffled: that took longer than all the rest of a claim, and a stack makes fifteen.
        first = random.randrange(len(RANGE))
        yield from RANGE[first:]
        yield from RANGE[:first]

    def _lock(self, port: int) -> bool:
        folder = Path(tempfile.gettempdir()) / f"haulage-ports-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        with ExitStack() as opened:
            lock = opened.enter_context((folder / str(port)).open("a"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            self._locks.push(opened.pop_all())
        return True


@contextmanager
def claiming(remembered: dict[str, int]) -> Iterator[Ports]:
    """Ports that are held to the end of the block."""
    with ExitStack() as locks:
        yield Ports(remembered, locks)


def is_free(port: int) -> bool:
    """Whether nobody listens on a port of the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
