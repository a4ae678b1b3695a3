"""A connection to a host that was cut off in silence ends by itself."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from infra import outages
from infra.driver_connection import DriverConnection

LIMIT_SECONDS = 15


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    """Return a connection of TCP to a server that says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connected:
        yield connected


def test_a_silent_peer_is_given_up_within_seconds(connection: socket.socket) -> None:
    """Both while an answer is waited for, when only probes are sent, and while something sent is not confirmed."""
    outages.enable_keepalive_against_silent_peer(connection)

    idle, interval, count = (
        connection.getsockopt(socket.IPPROTO_TCP, option)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    )
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert idle + interval * count < LIMIT_SECONDS
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) < LIMIT_SECONDS * 1_000


def test_connections_of_the_database_are_given_up(connection: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """The class of all connections sets it as soon as it has its transport."""

    class Transport:
        def get_extra_info(self, name: str) -> socket.socket:
            assert name == "socket"
            return connection

    for name in ("__init__", "__del__"):
        monkeypatch.setattr(f"asyncpg.Connection.{name}", lambda *_: None)

    arguments: list[Any] = [None, Transport(), None, None, None, None]
    DriverConnection(*arguments)
    gc.collect()

    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) > 0


def test_a_socket_of_the_file_system_has_no_such_options() -> None:
    """Its peer is on this machine, and cannot be cut off."""
    one, other = socket.socketpair()
    with one, other:
        outages.enable_keepalive_against_silent_peer(one)
    outages.enable_keepalive_against_silent_peer(None)
