"""A relay between a host's interface and the bridge, which delays frames and loses some: this kernel has no netem.

`python -m lab.relay INTERFACE TAP DELAY_SECONDS LOSS SEED` relays until it is ended. The host keeps its interface, so
that its connections go on: outside, a TAP device takes the place of the host's end on the bridge.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

FRAME_MAX_BYTES: Final = 70_000
"""A frame that the host's network stack leaves to be cut by hardware, with the header that says so."""
_TUNSETIFF: Final = 0x400454CA
_TAP_WITHOUT_INFO_WITH_HEADER: Final = 0x0002 | 0x1000 | 0x4000
_SOL_PACKET: Final = 263
_PACKET_VNET_HDR: Final = 15
_ETH_P_ALL: Final = 0x0003

Write = Callable[[bytes], object]


class Direction:
    """One way through the relay.

    Args:
        read: Returns the next frame.
        write: Sends a frame on.
    """

    def __init__(
        self, read: Callable[[], bytes], write: Write, delay_seconds: float, loss: float, draw: random.Random
    ) -> None:
        self._read = read
        self._write = write
        self._delay_seconds = delay_seconds
        self._loss = loss
        self._draw = draw

    def relay_next(self) -> None:
        """Read a frame, and send it on when its time has come, unless it is lost."""
        try:
            frame = self._read()
        except BlockingIOError:
            return
        if self._draw.random() >= self._loss:
            asyncio.get_running_loop().call_later(self._delay_seconds, self._send, frame)

    def _send(self, frame: bytes) -> None:
        # A full queue loses frames, as a real link does.
        with suppress(OSError):
            self._write(frame)


def open_tap(name: str) -> int:
    """Create a TAP device; return its file descriptor. The kernel removes it when that is closed."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    request = struct.pack("16sH22x", name.encode(), _TAP_WITHOUT_INFO_WITH_HEADER)
    fcntl.ioctl(descriptor, _TUNSETIFF, request)
    return descriptor


def open_interface(name: str) -> socket.socket:
    """Return a socket of whole frames of an interface, each with a header of `virtio_net`, as a TAP device has it."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    opened.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    opened.bind((name, _ETH_P_ALL))
    opened.setblocking(False)
    return opened


def read_received(opened: socket.socket) -> bytes:
    """Return a frame that came in; raise BlockingIOError if there is none, or it was sent by ourselves."""
    frame, (_, _, kind, *_) = opened.recvfrom(FRAME_MAX_BYTES)
    if kind == socket.PACKET_OUTGOING:
        raise BlockingIOError
    return frame


async def relay(interface: str, tap: str, delay_seconds: float, loss: float, seed: int) -> None:
    """Relay both ways until cancelled."""
    outside, inside = open_tap(tap), open_interface(interface)
    draw = random.Random(seed)
    from_host = Direction(
        lambda: read_received(inside), lambda frame: os.write(outside, frame), delay_seconds, loss, draw
    )
    to_host = Direction(lambda: os.read(outside, FRAME_MAX_BYTES), inside.send, delay_seconds, loss, draw)
    loop = asyncio.get_running_loop()
    loop.add_reader(inside, from_host.relay_next)
    loop.add_reader(outside, to_host.relay_next)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(relay(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])))
