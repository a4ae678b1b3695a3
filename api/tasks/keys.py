"""Keys: which task stands behind an id that a caller chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from api.shared_reads import BatchedLookup
from infra.database import Database
from stores.tasks import keys
from stores.tasks.keys import KeyClaim

KEYS_AT_A_TIME = 200


class Keys:
    """Writes keys down and reads them, those of many requests at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._claims = BatchedLookup(self._claim, KEYS_AT_A_TIME)

    async def claim(self, claim: KeyClaim) -> KeyClaim:
        """Write a claim down, unless there is one of its key; the one that is there then."""
        return await self._claims.get(claim) or claim

    async def move(self, before: KeyClaim, task_id: str) -> KeyClaim:
        """Have a key stand for another task, unless somebody was faster; what it stands for then."""
        await keys.move(self._database, before, task_id)
        return await self.claim(before)

    async def _claim(self, claims: Sequence[KeyClaim]) -> Mapping[KeyClaim, KeyClaim]:
        known = await keys.claim(self._database, claims)
        return {each: known[each.type, each.key] for each in claims}
