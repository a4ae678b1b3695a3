"""The embedded parts: on loopback only, restarted with nothing lost, and nobody left behind."""

from __future__ import annotations

import asyncpg

from infra.embedded import Stack


async def test_a_database_of_the_tests_own_is_empty(stack: Stack, empty_database_url: str, namespace: str) -> None:
    """Each test starts from nothing."""
    connection = await asyncpg.connect(empty_database_url.replace("+asyncpg", ""))
    assert await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
    await connection.close()
    assert namespace.startswith("test-")
