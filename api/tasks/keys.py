"""Keys: which task stands behind an id that a caller chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from api.together import Gathered
from infra.database import Database

KEYS_AT_A_TIME = 200

# Whoever comes second waits for the first to commit, and then reads what it wrote.
_CLAIM = """
    INSERT INTO task_keys (type, key, task_id, digest)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[]) ORDER BY 1, 2
    ON CONFLICT DO NOTHING
"""
_READ = """
    SELECT k.type, k.key, k.task_id, k.digest FROM task_keys k
    JOIN unnest($1::text[], $2::text[]) AS n (type, key) ON k.type = n.type AND k.key = n.key
"""
_FIND = """
    SELECT k.task_id FROM task_types t JOIN task_keys k ON k.type = t.type
    WHERE k.key = $1 AND ($2::text IS NULL OR t.project_id = $2) ORDER BY t.type LIMIT $3
"""
_MOVE = "UPDATE task_keys SET task_id = $4 WHERE type = $1 AND key = $2 AND task_id = $3"


@dataclass(frozen=True, slots=True)
class Mark:
    """What is written down under a key."""

    task_id: str
    digest: bytes


_Claim: TypeAlias = tuple[str, str, str, bytes]


class Keys:
    """Writes keys down and reads them, those of many requests at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._claims = Gathered(self._claim, KEYS_AT_A_TIME)

    async def claim(self, type_: str, key: str, mark: Mark) -> Mark:
        """Write a mark down, unless there is one; the one that is there then."""
        return await self._claims.ask((type_, key, mark.task_id, mark.digest)) or mark

    async def find(self, key: str, scope: str | None, limit: int) -> list[str]:
        """What a key stands for in the types of a project, or of all."""
        async with self._database.connection() as connection:
            return [row["task_id"] for row in await connection.fetch(_FIND, key, scope, limit)]

    async def move(self, type_: str, key: str, before: Mark, task_id: str) -> Mark:
        """Have a key stand for another task, unless somebody was faster; what it stands for then."""
        async with self._database.connection() as connection:
            await connection.execute(_MOVE, type_, key, before.task_id, task_id)
        return await self.claim(type_, key, before)

    async def _claim(self, claims: Sequence[_Claim]) -> Mapping[_Claim, Mark]:
        types, keys, task_ids, digests = map(list, zip(*claims, strict=True))
        async with self._database.connection() as connection:
            await connection.execute(_CLAIM, types, keys, task_ids, digests)
            rows = await connection.fetch(_READ, types, keys)
        marks = {(row["type"], row["key"]): Mark(row["task_id"], row["digest"]) for row in rows}
        return {claim: marks[claim[:2]] for claim in claims}
