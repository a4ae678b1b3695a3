"""Peers for the guarded client: servers that say exactly the given bytes and count who came, and a name server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from clients.http import GuardedClient
from infra.settings import EgressGuardSettings

Script = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Peer:
    """A server with its visitors: how many connections, and what each request began with."""

    host: str
    port: int
    connections: int = 0
    heads: list[bytes] = field(default_factory=list)

    @property
    def where(self) -> str:
        """As an entry of the allow list."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """Its root."""
        return f"http://{self.where}/"


def answer(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """A whole HTTP answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def says(*pieces: bytes) -> Script:
    """Say these pieces, one after the other."""

    async def script(writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return script


def drips(start: bytes, drop: bytes = b"x") -> Script:
    """Say the start, then a drop every few milliseconds for ever."""

    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while not writer.is_closing():
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(0.02)

    return script


@asynccontextmanager
async def running_peer(
    script: Script, *, host: str = "127.0.0.1", port: int = 0, keep_alive: bool = False, until: bytes = b"\r\n\r\n"
) -> AsyncIterator[Peer]:
    """Say the script once a request was read `until` there; with `keep_alive` again for each further one."""
    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                here.heads.append(await reader.readuntil(until))
                await script(writer)
                if not keep_alive:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        here.connections += 1
        talks.add(asyncio.create_task(talk(reader, writer)))

    server = await asyncio.start_server(accept, host, port)
    here = Peer(host, server.sockets[0].getsockname()[1])
    try:
        yield here
    finally:
        server.close()
        for task in talks:
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)


@asynccontextmanager
async def running_reachable_peer(
    script: Script, *, keep_alive: bool = False, **settings: Any
) -> AsyncIterator[tuple[Peer, GuardedClient]]:
    """A peer, and a client that may reach it and nothing else."""
    async with (
        running_peer(script, keep_alive=keep_alive) as here,
        GuardedClient(EgressGuardSettings(allow=[here.where], **settings)) as client,
    ):
        yield here, client


class Answers(AbstractResolver):
    """A name server that gives these answers in turn, then repeats the last; an empty one means "no such name"."""

    def __init__(self, *rounds: list[str]) -> None:
        self._rounds = list(rounds)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        addresses = self._rounds.pop(0) if len(self._rounds) > 1 else self._rounds[0]
        if not addresses:
            raise OSError(None, "no such name")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing to close."""
