"""`python -m bench.transfers.load`: HTTP requests as fast as they are answered, for a few microseconds of CPU each.

It shares the machine with what it measures, so it is no HTTP client: prepared bytes go out over connections that are
kept, one request at a time on each, and of an answer only the status and the length are looked at.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel

READ_BYTES = 65_536

_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


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


class Report(BaseModel):
    """What became of it; written to standard output."""

    begun_at: float
    ended_at: float
    statuses: dict[int, int]
    latencies_ms: list[float]
    cpu_seconds: float


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    number: int = 0
    sent_at: float = 0.0
    received: bytearray = field(default_factory=bytearray)


def run(plan: Plan) -> Report:
    """Send all requests, or as many as the time allows."""
    requests = _prepared(plan)
    answers: list[bytes] = [b""] * len(requests)
    statuses: Counter[int] = Counter()
    latencies: list[float] = []
    turns = iter(range(len(requests)))
    address = _address(plan.base)
    with selectors.DefaultSelector() as selector:
        connections = [_Connection(socket.create_connection(address)) for _ in range(plan.connections)]
        for connection in connections:
            connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        time.sleep(max(0.0, plan.start_at - time.time()))
        begun_at, deadline = time.time(), time.perf_counter() + plan.seconds
        busy = sum(_sent(connection, requests, turns, deadline) for connection in connections)
        while busy:
            for key, _ in selector.select():
                connection = key.data
                if not (answer := _answer(connection)):
                    continue
                latencies.append((time.perf_counter() - connection.sent_at) * 1e3)
                statuses[answer[0]] += 1
                answers[connection.number] = answer[1]
                busy -= not _sent(connection, requests, turns, deadline)
        ended_at = time.time()
        for connection in connections:
            connection.socket.close()
    plan.answers.write_bytes(b"\n".join(answers))
    return Report(
        begun_at=begun_at,
        ended_at=ended_at,
        statuses=statuses,
        latencies_ms=[round(each, 3) for each in latencies],
        cpu_seconds=time.process_time(),
    )


def _prepared(plan: Plan) -> list[bytes]:
    return [_request(plan.headers, *json.loads(line)) for line in plan.requests.read_bytes().splitlines()]


def _request(headers: Mapping[str, str], method: str, path: str, body: object) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: bench", *(f"{name}: {value}" for name, value in headers.items())]
    if content:
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    return "\r\n".join(lines).encode() + _HEAD_END + content


def _address(base: str) -> tuple[str, int]:
    parts = urlsplit(base)
    return parts.hostname or "127.0.0.1", parts.port or 80


def _sent(connection: _Connection, requests: Sequence[bytes], turns: Iterator[int], deadline: float) -> bool:
    """Whether there was something left to send."""
    if time.perf_counter() >= deadline or (number := next(turns, None)) is None:
        return False
    connection.number, connection.sent_at = number, time.perf_counter()
    connection.socket.sendall(requests[number])
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
    length = _LENGTH.search(connection.received, 0, head_end)
    if length is None:
        raise ConnectionError(f"an answer without a length: {bytes(connection.received[:head_end])!r}")
    start = head_end + len(_HEAD_END)
    if len(connection.received) < start + int(length[1]):
        return None
    status, body = int(connection.received[9:12]), bytes(connection.received[start:])
    connection.received.clear()
    return status, body


def main() -> None:
    """Plan in, report out."""
    print(run(Plan.model_validate_json(sys.stdin.read())).model_dump_json())


if __name__ == "__main__":
    main()
