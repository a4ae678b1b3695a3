"""Ports of the embedded parts: the wished one, or one that is free."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from dev.embedded.ports import LOOPBACK, PORT_RANGE, PortReservations, reserve_ports


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server((LOOPBACK, 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def free() -> int:
    """A port that nobody listens on."""
    with reserve_ports({}) as ports:
        return ports.reserve("any")


@pytest.fixture
def ports() -> Iterator[PortReservations]:
    """Ports of a first run."""
    with reserve_ports({}) as claimed:
        yield claimed


def test_the_wished_port_is_taken_when_it_is_free(ports: PortReservations, free: int) -> None:
    """Known addresses stay what users expect."""
    assert ports.reserve("api", free) == free


def test_a_taken_port_moves_aside(ports: PortReservations, taken: int) -> None:
    """A second installation on the machine starts too, outside the ephemeral range."""
    assert ports.reserve("api", taken) in PORT_RANGE


def test_a_taken_port_is_said(taken: int) -> None:
    """Which port, and where the component is instead."""
    lines: list[str] = []
    with reserve_ports({}, lines.append) as ports:
        moved = ports.reserve("api", taken)
    assert lines == [f"Port {taken} is kept by another program: api uses {moved} instead."]


def test_no_port_is_given_twice(ports: PortReservations, free: int) -> None:
    """Nobody listens yet when the second part claims."""
    assert ports.reserve("api", free) == free
    assert ports.reserve("ui", free) != free


def test_no_port_is_given_to_two_supervisors(ports: PortReservations, free: int) -> None:
    """Nobody listens while a part restarts; its port is not free for that, and free again when all ends."""
    assert ports.reserve("api", free) == free
    with reserve_ports({"api": free}) as others:
        assert others.reserve("api", free) != free
    with reserve_ports({}) as third:
        assert third.reserve("api", others.by_name["api"]) == others.by_name["api"]


def test_the_port_of_the_last_run_is_taken_again(taken: int, free: int) -> None:
    """Addresses stay the same from run to run, also after having moved aside."""
    for wish in (taken, 0):
        with reserve_ports({"api": free}) as ports:
            assert ports.reserve("api", wish) == free
