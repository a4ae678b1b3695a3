"""Databases of peers: each has an empty one of its own on the server that is there."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg


@asynccontextmanager
async def own_database(server: str) -> AsyncIterator[str]:
    """An empty database for one run of a peer; `server` is the address of any other there."""
    name = f"peer_{secrets.token_hex(4)}"
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(f'CREATE DATABASE "{name}"')
        try:
            yield f"{server.rpartition('/')[0]}/{name}"
        finally:
            await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    finally:
        await connection.close()
