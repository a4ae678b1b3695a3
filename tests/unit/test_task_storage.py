"""What many callers share does not fail for one of them: claims of chosen ids, and outcomes of many tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from api.tasks import responses
from infra.database import Database
from stores.tasks import contents
from stores.tasks.contents import ChosenKeyClaim


class ForgetfulDatabase:
    """Chosen keys, one of which housekeeping removes as soon as it is there for the first time."""

    def __init__(self, stored: dict[tuple[str, str], tuple[str, bytes]], removed: tuple[str, str]) -> None:
        self.stored = stored
        self._removed: tuple[str, str] | None = removed

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """The only one."""
        yield self

    async def execute(self, _statement: str, *columns: Any) -> None:
        """Claim the keys that are free."""
        for type_, key, task_id, digest in zip(*columns, strict=True):
            self.stored.setdefault((type_, key), (task_id, digest))
        if self._removed:
            del self.stored[self._removed]
            self._removed = None

    async def fetch(self, _statement: str, *columns: Any) -> list[Any]:
        """Read what is stored."""
        return [
            Row(type_, key, *self.stored[type_, key])
            for type_, key in zip(*columns, strict=True)
            if (type_, key) in self.stored
        ]


class Row(tuple[Any, ...]):
    """A row, by place and by name."""

    __slots__ = ()

    def __new__(cls, *values: Any) -> Row:
        """Take its values one by one."""
        return super().__new__(cls, values)

    def __getitem__(self, place: Any) -> Any:
        names = ("type", "key", "task_id", "digest")
        return super().__getitem__(names.index(place) if isinstance(place, str) else place)


async def test_a_key_that_is_removed_as_it_is_claimed_is_claimed_again() -> None:
    """Its task had been kept long enough. The creates of all others in the batch failed with an internal error."""
    database = ForgetfulDatabase({("t", "old"): ("expired", b"d")}, ("t", "old"))
    claims = [ChosenKeyClaim("t", key, f"task {key}", b"d") for key in ("new", "old", "new")]

    stored = await contents.claim_chosen_keys(cast("Database", database), claims)

    assert {key: claim.task_id for (_, key), claim in stored.items()} == {"new": "task new", "old": "task old"}


async def test_one_task_of_many_that_fails_unexpectedly_has_an_outcome_as_well() -> None:
    """The others were created, and their ids were lost with the response."""

    async def create(number: int) -> str:
        if number == 1:
            raise LookupError("secret")
        return f"task {number}"

    answer = await responses.process_concurrently_and_collect_outcomes(range(3), create)

    assert [(each.code, each.task_id) for each in answer.results] == [(0, "task 0"), (8036, ""), (0, "task 2")]
    assert "secret" not in answer.msg
