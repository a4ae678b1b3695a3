"""The ports of an installation on the loopback address, each reserved for one supervisor."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from dev.embedded.processes import Announce, announce_by_log

LOOPBACK = "127.0.0.1"
# Below the ephemeral ranges of Linux and macOS: an outgoing connection of any program could take a port from them
# while its component restarts, and a client that keeps connecting to it may even connect to itself.
PORT_RANGE = range(20_000, 32_000)


class PortReservations:
    """Reserve ports, each for one supervisor of this user at a time.

    No process listens on a port before its component serves, nor while it restarts. A UDP socket on the same number
    keeps another supervisor from taking it at such a moment: it needs no file, and ends with the process.

    Args:
        remembered: The ports of the last run by name, used again where no other is preferred.
        locks: Closes the UDP sockets.
        announce: Gets a line about each preferred port that is taken.
    """

    def __init__(self, remembered: dict[str, int], locks: ExitStack, announce: Announce = announce_by_log) -> None:
        self._announce = announce
        self._remembered = remembered
        self._locks = locks
        self.by_name: dict[str, int] = {}

    def reserve(self, name: str, preferred: int = 0) -> int:
        """Reserve a port: the preferred one, or that of the last run, or any; the first that is free."""
        for port in self._iterate_candidate_ports(name, preferred):
            if port not in self.by_name.values() and is_port_free(port) and self._try_lock(port):
                self.by_name[name] = port
                if preferred not in (0, port):
                    self._announce(f"Port {preferred} is kept by another program: {name} uses {port} instead.")
                return port
        raise OSError(errno.EADDRINUSE, f"no port between {PORT_RANGE.start} and {PORT_RANGE.stop} is free for {name}")

    def _iterate_candidate_ports(self, name: str, preferred: int) -> Iterator[int]:
        if preferred:
            yield preferred
        if name in self._remembered:
            yield self._remembered[name]
        # Not shuffled: shuffling took longer than the rest of a claim, and a stack claims fifteen ports.
        first = random.randrange(len(PORT_RANGE))
        yield from PORT_RANGE[first:]
        yield from PORT_RANGE[:first]

    def _try_lock(self, port: int) -> bool:
        with ExitStack() as opened:
            lock = opened.enter_context(socket.socket(type=socket.SOCK_DGRAM))
            try:
                lock.bind((LOOPBACK, port))
            except OSError:
                return False
            self._locks.push(opened.pop_all())
        return True


@contextmanager
def reserve_ports(remembered: dict[str, int], announce: Announce = announce_by_log) -> Iterator[PortReservations]:
    """Yield ports that stay reserved to the end of the block."""
    with ExitStack() as locks:
        yield PortReservations(remembered, locks, announce)


def is_port_free(port: int) -> bool:
    """Return whether a port of the loopback address is free."""
    with socket.socket() as probe:
        # As the components do: connections that linger after a stop do not keep their port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
