"""The relay of the lab delays what passes through it, and loses a share of it by a seed."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque

from lab.relay import Direction
from tests.support.waiting import eventually

FRAMES = 400


class Link:
    """A queue of frames that come in, and what was sent on, each with its moment."""

    def __init__(self, *frames: bytes) -> None:
        self.waiting = deque(frames)
        self.sent: list[tuple[float, bytes]] = []

    def read(self) -> bytes:
        """Return the next frame, or raise as an empty socket does."""
        if not self.waiting:
            raise BlockingIOError
        return self.waiting.popleft()

    def write(self, frame: bytes) -> None:
        """Keep a frame."""
        self.sent.append((time.monotonic(), frame))


def _build_direction(link: Link, *, delay_seconds: float = 0.0, loss: float = 0.0) -> Direction:
    return Direction(link.read, link.write, delay_seconds, loss, random.Random(1))


async def test_a_frame_is_sent_on_when_its_time_has_come() -> None:
    """Not before; and in the order in which they came."""
    link = Link(b"one", b"other")
    direction = _build_direction(link, delay_seconds=0.1)
    began = time.monotonic()

    direction.relay_next()
    direction.relay_next()
    direction.relay_next()  # there is none left
    await eventually(lambda: len(link.sent) == 2)

    assert [frame for _, frame in link.sent] == [b"one", b"other"]
    # uvloop counts a delay in whole milliseconds of its clock: less than one can be missing.
    assert all(at - began > 0.099 for at, _ in link.sent)


async def test_a_share_of_the_frames_is_lost() -> None:
    """The share that was asked for, and the same frames for the same seed."""
    runs = []
    for _ in range(2):
        link = Link(*(str(number).encode() for number in range(FRAMES)))
        direction = _build_direction(link, loss=0.25)
        for _ in range(FRAMES):
            direction.relay_next()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        runs.append([frame for _, frame in link.sent])

    assert FRAMES * 0.65 < len(runs[0]) < FRAMES * 0.85
    assert runs[0] == runs[1]


async def test_a_full_queue_loses_a_frame_and_no_more() -> None:
    """What cannot be sent on is lost; the relay goes on."""
    link = Link(b"lost", b"sent")
    sent: list[bytes] = []

    def write(frame: bytes) -> None:
        if frame == b"lost":
            raise BlockingIOError
        sent.append(frame)

    direction = Direction(link.read, write, 0.0, 0.0, random.Random(1))
    direction.relay_next()
    direction.relay_next()
    await eventually(lambda: sent == [b"sent"])
