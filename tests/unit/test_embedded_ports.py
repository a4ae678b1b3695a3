"""Ports of the embedded parts: the wished one, or one that is free."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from infra.embedded.ports import LOOPBACK, RANGE, Ports


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server((LOOPBACK, 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def free() -> int:
    """A port that nobody listens on."""
    return Ports({}).claim("any")


def test_the_wished_port_is_taken_when_it_is_free(free: int) -> None:
    """Known addresses stay what users expect."""
    assert Ports({}).claim("api", free) == free


def test_a_taken_port_moves_aside(taken: int) -> None:
    """A second installation on the machine starts too, outside the ephemeral range."""
    assert Ports({}).claim("api", taken) in RANGE


def test_no_port_is_given_twice(free: int) -> None:
    """Nobody listens yet when the second part claims."""
    ports = Ports({})
    assert ports.claim("api", free) == free
    assert ports.claim("ui", free) != free


def test_the_port_of_the_last_run_is_taken_again(taken: int, free: int) -> None:
    """Addresses stay the same from run to run, also after having moved aside."""
    assert Ports({"api": free}).claim("api", taken) == free
    assert Ports({"inner": free}).claim("inner") == free
