"""Database access of the API: types with a cache, keys and long texts in batches.

Types may be up to a second old. A change takes effect at once in lanes, which get their rules with each batch, and a
full lane says so itself.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

import msgspec
from msgspec import structs

from api.batching import BatchedLookup
from api.tasks.requests import TaskTypeConfiguration
from domain.faults import Conflict, Missing
from domain.tasks import names
from domain.tasks.messages import REF_CHARACTERS, TEXT_MAX_BYTES, Task, TaskFlags, TaskTypeRules
from infra import log
from infra.database import Database
from stores.tasks import contents, types
from stores.tasks.contents import ChosenKeyClaim
from stores.tasks.types import TaskTypeChange, TaskTypeCounts, TaskTypeRow

TYPE_UNKNOWN = "task_type_unknown"
TYPE_AMBIGUOUS = "task_type_ambiguous"
TYPE_CHANGED = "task_type_changed"

FRESH_SECONDS = 0.4
"""A cached type that is older is read again in the background."""
STALE_SECONDS = 1.0
"""A cached type that is older is read again before it is used."""
TYPES_PER_READ = 200
KEYS_PER_CLAIM = 200
TEXTS_PER_READ = 100

_ESCAPE_MAX_BYTES = 6
"""Bytes of JSON that a character takes at most."""
TextPlace: TypeAlias = tuple[str, str]
"""A task's id and a reference."""

_encode = msgspec.json.Encoder().encode
_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class CachedTaskType(TaskTypeRow):
    """A type as it was read last, with the rules that its lanes apply."""

    rules: TaskTypeRules
    read_at: float

    @property
    def removal_rules(self) -> TaskTypeRules:
        """The rules by which lanes refuse creates, until they get those of the type's next version."""
        return structs.replace(self.rules, version=self.version + 1, removed=True)


class TypeCache:
    """Types that this process has read."""

    def __init__(self, database: Database, lane_max_tasks: int) -> None:
        self._database = database
        self._lane_max_tasks = lane_max_tasks
        self._types: dict[str, CachedTaskType] = {}
        # The version of each type that this process has removed: rows up to it are older than the removal.
        self._removed_versions: dict[str, int] = {}
        self._reads = BatchedLookup(self._read_types, TYPES_PER_READ)
        self._refreshes: dict[str, asyncio.Task[None]] = {}

    def get_cached_unless_stale(self, name: str, project_id: str) -> CachedTaskType | None:
        """Return a project's type if it was read less than a second ago, so that most requests need not wait."""
        type_ = names.build_type_id(project_id, name)
        cached = self._types.get(type_)
        if cached is None:
            return None
        age = time.monotonic() - cached.read_at
        if age > FRESH_SECONDS and type_ not in self._refreshes:
            self._refreshes[type_] = asyncio.create_task(self._refresh_in_background(type_))
        return cached if age <= STALE_SECONDS else None

    def get_last_pos(self, type_: str) -> int:
        """Return the last known position of a type; 0 if this process has not read the type yet."""
        cached = self._types.get(type_)
        return cached.end_pos if cached else 0

    async def require_type(self, name: str, project_filter: str | None) -> CachedTaskType:
        """Return the type of a name.

        Args:
            project_filter: A project; None for all projects.

        Raises:
            Missing: There is no such type.
            Conflict: Several projects have one, and none is named.
        """
        found = await self.list_types_with_name(name, project_filter)
        if not found:
            raise _build_unknown_type_fault(name)
        if len(found) > 1:
            raise Conflict(
                TYPE_AMBIGUOUS,
                f"{len(found)} projects have a type {name!r}.",
                "Name the project in the header Haulage-Project, or use a key of the project.",
            )
        return found[0]

    async def list_types_with_name(self, name: str, scope: str | None) -> list[CachedTaskType]:
        """Return the types with this name, of a project or of all."""
        if scope is not None:
            found = self.get_cached_unless_stale(name, scope) or await self.reload_type(
                names.build_type_id(scope, name)
            )
            return [found] if found else []
        began_at = time.monotonic()
        return [self._cache_type(row, began_at) for row in await types.list_types_by_name(self._database, name)]

    async def reload_type(self, type_: str) -> CachedTaskType | None:
        """Read a type from the database; None if there is none."""
        return await self._reads.look_up_in_next_batch(type_)

    async def read_project_types_from_database(self, project_id: str) -> list[CachedTaskType]:
        """Return all types of a project."""
        began_at = time.monotonic()
        rows = await types.list_types_of_project(self._database, project_id)
        return [self._cache_type(row, began_at) for row in rows]

    async def list_type_and_counts_page_plus_one(
        self, scope: str | None, prefix: str, after: str, limit: int
    ) -> list[tuple[CachedTaskType, TaskTypeCounts]]:
        """Return types with their counters, by name, and one more than the limit if another page follows.

        Args:
            after: A name, or `name/project`: only types behind it are returned.
        """
        name, _, project_id = after.partition("/")
        began_at = time.monotonic()
        rows = await types.list_type_and_counts_page_plus_one(self._database, scope, prefix, (name, project_id), limit)
        return [(self._cache_type(row, began_at), counts) for row, counts in rows]

    async def create_or_update_type(
        self, project_id: str, configuration: TaskTypeConfiguration, types_max: int
    ) -> CachedTaskType:
        """Create a type, or change the given fields of it.

        Raises:
            Invalid: The resulting retry intervals contradict each other; nothing is changed.
            QuotaExhausted: The project has as many types as it may.
        """
        change = TaskTypeChange(**{name: getattr(configuration, name) for name in TaskTypeChange.__slots__})
        name = configuration.task_type
        return self._cache_type(
            await types.create_or_update_type(
                self._database, names.build_type_id(project_id, name), project_id, name, change, types_max
            )
        )

    async def set_paused(self, scope: str | None, name: str, *, paused: bool) -> CachedTaskType:
        """Pause or resume a type; raises what `require_type` does."""
        found = await self.require_type(name, scope)
        row = await types.set_paused(self._database, found.type, paused=paused)
        if row is None:
            raise _build_unknown_type_fault(name)
        return self._cache_type(row)

    async def remove_type_unless_changed(self, task_type: CachedTaskType) -> bool:
        """Remove a type, until it is registered again; False if it was changed, or new tasks go to another lane."""
        is_removed = await types.remove_type_unless_changed(self._database, task_type)
        if is_removed:
            self._removed_versions[task_type.type] = task_type.version
            known = self._types.get(task_type.type)
            # It may be registered again before the answer to its removal is here.
            if known is not None and known.version <= task_type.version:
                del self._types[task_type.type]
        return is_removed

    async def undo_removal_rules(self, task_type: CachedTaskType) -> CachedTaskType | None:
        """Return a type with rules that replace its removal rules; None if it was changed, so that newer ones do."""
        row = await types.increment_version_unless_changed(self._database, task_type)
        return self._cache_type(row) if row else None

    async def replace_removal_rules(self, sent: CachedTaskType) -> CachedTaskType | None:
        """Return a later version of a type of which a lane has removal rules; None if the type is removed."""
        current = await self.reload_type(sent.type)
        if current is None or current.version > sent.version:
            return current
        # Not removed, so its removal was interrupted or has not ended. One that has not ended fails by this.
        return await self.undo_removal_rules(current) or await self.reload_type(sent.type)

    async def advance_to_lane_unless_past(self, type_: str, pos: int) -> CachedTaskType | None:
        """Direct new tasks to the lane at this position; None if the type has gone past it, or is removed."""
        row = await types.advance_type_to_lane_unless_past(self._database, type_, pos)
        return self._cache_type(row) if row else None

    async def _refresh_in_background(self, type_: str) -> None:
        try:
            await self.reload_type(type_)
        except Exception as error:  # noqa: BLE001 - the next request for the type reads it again and gets the error
            _log.warning("task_type_refresh_failed", type=type_, error=repr(error))
        finally:
            del self._refreshes[type_]

    async def _read_types(self, identifiers: Sequence[str]) -> Mapping[str, CachedTaskType]:
        began_at = time.monotonic()
        rows = await types.find_types_by_id(self._database, identifiers)
        return {row.type: self._cache_type(row, began_at) for row in rows}

    def _cache_type(self, row: TaskTypeRow, read_at: float | None = None) -> CachedTaskType:
        """Return a type and keep it, unless it is older than what is known: changes of this process are kept.

        Args:
            read_at: When the read began; None for a row that this process has written.
        """
        own = {"lane_max_tasks", "removed"}
        rules = TaskTypeRules(
            **{name: getattr(row, name) for name in TaskTypeRules.__struct_fields__ if name not in own},
            lane_max_tasks=self._lane_max_tasks,
        )
        read = CachedTaskType(**asdict(row), rules=rules, read_at=time.monotonic() if read_at is None else read_at)
        if row.version <= self._removed_versions.get(row.type, 0):
            return read
        known = self._types.get(row.type)
        if known is not None:
            # The answers to two changes may cross.
            written_before = (known.version, known.end_pos) > (row.version, row.end_pos)
            if written_before if read_at is None else known.read_at > read_at:
                return known
        self._types[row.type] = read
        return read


def _build_unknown_type_fault(name: str) -> Missing:
    return Missing(
        TYPE_UNKNOWN, f"There is no type {name!r} for this key.", "Register it with POST /v1/register_task_type."
    )


class ChosenTaskIdStore:
    """Task ids that callers choose."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._claims = BatchedLookup(self._claim_chosen_keys, KEYS_PER_CLAIM)

    async def claim_chosen_key_or_get_existing_claim(self, claim: ChosenKeyClaim) -> ChosenKeyClaim:
        """Store a claim unless its key is taken; return the claim that is stored then."""
        return await self._claims.look_up_in_next_batch(claim) or claim

    async def reassign_chosen_key(self, before: ChosenKeyClaim, task_id: str) -> ChosenKeyClaim:
        """Assign a chosen key to another task, unless that was done already; return the claim that is stored then."""
        await contents.reassign_chosen_key_unless_done_already(self._database, before, task_id)
        return await self.claim_chosen_key_or_get_existing_claim(before)

    async def _claim_chosen_keys(self, claims: Sequence[ChosenKeyClaim]) -> Mapping[ChosenKeyClaim, ChosenKeyClaim]:
        stored = await contents.claim_chosen_keys(self._database, claims)
        return {each: stored[each.type, each.chosen_key] for each in claims}


def is_too_long_for_lane(text: str) -> bool:
    """Return whether a text is stored outside its lane."""
    return len(text) * _ESCAPE_MAX_BYTES + 2 > TEXT_MAX_BYTES and len(_encode(text)) > TEXT_MAX_BYTES


def derive_text_reference(text: str) -> str:
    """Derive the reference of a text from its content."""
    digest = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(digest)[:REF_CHARACTERS].decode()


class LongTextStore:
    """Contents and logs that are too long for a lane."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writes = BatchedLookup(self._write_texts, TEXTS_PER_READ)
        self._reads = BatchedLookup(self._read_stored_texts, TEXTS_PER_READ)

    async def write_and_get_reference(self, task_id: str, text: str) -> str:
        """Write a text; return its reference once it is durable."""
        reference = derive_text_reference(text)
        await self._writes.look_up_in_next_batch((task_id, reference, text))
        return reference

    async def read_texts(self, task_id: str, task: Task) -> tuple[str, str]:
        """Return content and log of a task in full."""
        if not task.flags & (TaskFlags.CONTENT | TaskFlags.LOG):
            return task.content, task.log
        content = (
            await self._read_referenced_text_or_empty(task_id, task.content)
            if task.flags & TaskFlags.CONTENT
            else task.content
        )
        log = await self._read_referenced_text_or_empty(task_id, task.log) if task.flags & TaskFlags.LOG else task.log
        return content, log

    async def _read_referenced_text_or_empty(self, task_id: str, reference: str) -> str:
        # When a task ends, its earlier texts are removed; a task that was read before may still refer to one.
        return await self._reads.look_up_in_next_batch((task_id, reference)) or ""

    async def _write_texts(self, texts: Sequence[tuple[str, str, str]]) -> Mapping[tuple[str, str, str], bool]:
        await contents.write_texts(self._database, texts)
        return dict.fromkeys(texts, True)

    async def _read_stored_texts(self, places: Sequence[TextPlace]) -> Mapping[TextPlace, str]:
        return await contents.read_texts(self._database, places)
