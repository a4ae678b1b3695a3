"""`python -m bench.load`: HTTP requests as fast as they are answered, for a few microseconds of CPU each.

It shares the machine with what it measures, so it is no HTTP client: prepared bytes go out over connections that are
kept, one request at a time on each, and of an answer only the status and the length are looked at.
"""

from __future__ import annotations

import heapq
import itertools
import json
import re
import selectors
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel

READ_BYTES = 65_536

_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)

Script: TypeAlias = Generator[tuple[bytes, float], tuple[int, bytes], None]
"""What one connection does: it yields a request and when that is due, and is given status and body of the answer.

Times are those of `time.perf_counter`; one that is over, like 0, means at once.
"""


class Plan(BaseModel):
    """What to send; read from standard input."""

    base: str
    headers: dict[str, str]
    requests: Path
    """JSON lines: method, path, body."""
    answers: Path
    """Where bodies are written, a line each, in the order of the requests."""
    connections: int
    start_at: float = 0.0
    """Unix time."""
    seconds: float = 3_600.0
    """No request is begun later than that."""
    per_second: float = 0.0
    """Requests are due at that rate, and waiting for a free connection counts; 0 is as fast as can be."""
    until: Path | None = None
    """Repeat the requests until this file exists; the last answer to each is kept."""
    times: Path | None = None
    """Where the Unix times at which the answers came are written, a line each; 0 without an answer."""


class Report(BaseModel):
    """What became of it; written to standard output."""

    begun_at: float
    ended_at: float
    statuses: dict[int, int]
    latencies_ms: list[float]
    cpu_seconds: float
    """Of the generator itself, from the first request to the last answer."""


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    script: Script
    request: bytes = b""
    sent_at: float = 0.0
    """When the request was sent, or was due and could not be."""
    received: bytearray = field(default_factory=bytearray)


def run(plan: Plan) -> Report:
    """Send all requests, or as many as the time allows."""
    requests = _prepared(plan)
    answers: list[bytes] = [b""] * len(requests)
    times = [0.0] * len(requests)
    turns = itertools.count() if plan.until else iter(range(len(requests)))
    report = drive(
        plan.base,
        plan.connections,
        lambda begun: _sender(plan, requests, turns, answers, times, begun),
        start_at=plan.start_at,
    )
    plan.answers.write_bytes(b"\n".join(answers))
    if plan.times:
        plan.times.write_text("\n".join(map(str, times)))
    return report


def drive(base: str, connections: int, script: Callable[[float], Script], *, start_at: float = 0.0) -> Report:
    """Run a script on every connection, to the end of all; each script gets the time of the start."""
    statuses: Counter[int] = Counter()
    latencies: list[float] = []
    due: list[tuple[float, int, _Connection]] = []
    address = _address(base)
    with selectors.DefaultSelector() as selector:
        opened = [socket.create_connection(address) for _ in range(connections)]
        time.sleep(max(0.0, start_at - time.time()))
        begun_at, begun, begun_cpu = time.time(), time.perf_counter(), time.process_time()
        busy = 0
        for each in opened:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(each, script(begun))
            selector.register(each, selectors.EVENT_READ, connection)
            busy += _went_on(connection, None, due)
        while busy:
            for key, _ in selector.select(max(0.0, due[0][0] - time.perf_counter()) if due else None):
                connection = key.data
                if answer := _answer(connection):
                    latencies.append((time.perf_counter() - connection.sent_at) * 1e3)
                    statuses[answer[0]] += 1
                    busy -= not _went_on(connection, answer, due)
            while due and due[0][0] <= time.perf_counter():
                connection = heapq.heappop(due)[2]
                connection.socket.sendall(connection.request)
        ended_at = time.time()
        for each in opened:
            each.close()
    return Report(
        begun_at=begun_at,
        ended_at=ended_at,
        statuses=statuses,
        latencies_ms=[round(each, 3) for each in latencies],
        cpu_seconds=time.process_time() - begun_cpu,
    )


def request(headers: Mapping[str, str], method: str, path: str, content: bytes) -> bytes:
    """A request as it goes over the wire, with JSON or without a body."""
    lines = [f"{method} {path} HTTP/1.1", "Host: bench", *(f"{name}: {value}" for name, value in headers.items())]
    if content:
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    return "\r\n".join(lines).encode() + _HEAD_END + content


def _prepared(plan: Plan) -> list[bytes]:
    lines = map(json.loads, plan.requests.read_bytes().splitlines())
    return [
        request(plan.headers, method, path, b"" if body is None else json.dumps(body).encode())
        for method, path, body in lines
    ]


def _sender(
    plan: Plan,
    requests: Sequence[bytes],
    turns: Iterator[int],
    answers: list[bytes],
    times: list[float],
    begun: float,
) -> Script:
    """Takes the next of all requests, again and again."""
    for turn in turns:
        due = begun + turn / plan.per_second if plan.per_second else 0.0
        if max(due, time.perf_counter()) >= begun + plan.seconds or (plan.until and plan.until.exists()):
            return
        number = turn % len(requests)
        _, answers[number] = yield requests[number], due
        times[number] = time.time()


def _address(base: str) -> tuple[str, int]:
    parts = urlsplit(base)
    return parts.hostname or "127.0.0.1", parts.port or 80


def _went_on(
    connection: _Connection, answer: tuple[int, bytes] | None, due: list[tuple[float, int, _Connection]]
) -> bool:
    """Send what a connection has next, or put it down for later; whether there was something left."""
    try:
        asked, at = next(connection.script) if answer is None else connection.script.send(answer)
    except StopIteration:
        return False
    now = time.perf_counter()
    connection.sent_at = at or now
    if at > now:
        connection.request = asked
        heapq.heappush(due, (at, id(connection), connection))
    else:
        connection.socket.sendall(asked)
    return True


def _answer(connection: _Connection) -> tuple[int, bytes] | None:
    """Status and body, once the answer is whole."""
    piece = connection.socket.recv(READ_BYTES)
    if not piece:
        raise ConnectionError("the server closed a connection in the middle of the run")
    connection.received += piece
    head_end = connection.received.find(_HEAD_END)
    if head_end < 0:
        return None
    status, length = int(connection.received[9:12]), _LENGTH.search(connection.received, 0, head_end)
    if length is None and status != HTTPStatus.NO_CONTENT:
        raise ConnectionError(f"an answer without a length: {bytes(connection.received[:head_end])!r}")
    start = head_end + len(_HEAD_END)
    if length and len(connection.received) < start + int(length[1]):
        return None
    body = bytes(connection.received[start:])
    connection.received.clear()
    return status, body


def main() -> None:
    """Plan in, report out."""
    print(run(Plan.model_validate_json(sys.stdin.read())).model_dump_json())


if __name__ == "__main__":
    main()
