"""Client of addresses for operators: follow messages, retry and skip them, steer cycles, compare the modules."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any

from haulage.addresses.models import (
    Comparison,
    CycleScheduleStatus,
    FailedCount,
    LogicalDelete,
    MessageDetails,
    MessageState,
    MessageWithModuleAnswers,
    Module,
    PublishedMessagesOutcomeCounts,
    PurgeOrComparisonState,
    PurgeProgressAndResults,
    QuarantinedMessage,
    RetryCounts,
    SkipCounts,
    Topic,
    UnfinishedCounts,
    WaitKind,
    build_filters,
)
from haulage.transport import RetryingApiTransport

FIRST_POLL_SECONDS = 0.2
LONGEST_POLL_SECONDS = 2.0
PAGE_SIZE = 200
"""Entries of a list in one response."""


class Addresses:
    """Client of the addresses of an installation, with an admin key.

    Requests are retried for `patience_seconds` while the API does not answer. Purges, comparisons, and mends and
    discards of the quarantine would be carried out twice: they are retried only where they cannot have begun, and fail
    in a sentence otherwise.

        async with Addresses("https://haulage.example.com", admin_key, who="ann") as addresses:
            async for message in addresses.list_messages(state=MessageState.GIVEN_UP):
                print(message.message_id, message.waits)
            await addresses.retry_messages("the module is back")

    Args:
        who: The operator, for the audit: operators share one key.

    Raises:
        RequestRefused: By every method, if the API refuses the request.
        ApiUnreachable: By every method, if there is no answer within `patience_seconds`.
    """

    def __init__(self, base_url: str, key: str, *, who: str, patience_seconds: float = 60.0) -> None:
        self._transport = RetryingApiTransport(base_url, key, patience_seconds)
        self._who = who

    async def __aenter__(self) -> Addresses:
        await self._transport.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()

    async def get_unfinished_counts(self) -> UnfinishedCounts:
        """Count the messages that are not done, by topic and state."""
        return UnfinishedCounts.model_validate(await self._get("figures"))

    async def watch(self) -> AsyncIterator[UnfinishedCounts]:
        """Yield the figures whenever they change, until cycles have nothing left to do.

        Messages that were given up are left: they need an operator.
        """
        last, pause = None, FIRST_POLL_SECONDS
        while last is None or last.unfinished:
            if last is not None:
                await asyncio.sleep(pause)
                pause = min(pause * 1.2, LONGEST_POLL_SECONDS)
            now = await self.get_unfinished_counts()
            if last is None or now.messages != last.messages:
                yield now
            last = now

    async def watch_published(
        self, numbers: Collection[str], since: datetime
    ) -> AsyncIterator[PublishedMessagesOutcomeCounts]:
        """Yield how far published messages are whenever that changes, until each has ended.

        Args:
            numbers: The ids that Pub/Sub gave them.
            since: A time of the API before they were published, such as `at` of the figures.
        """
        last, pause = None, FIRST_POLL_SECONDS
        while last is None or last.ended < last.total:
            if last is not None:
                await asyncio.sleep(pause)
                pause = min(pause * 1.2, LONGEST_POLL_SECONDS)
            now = await self._load_published_progress(frozenset(numbers), since)
            if now != last:
                yield now
            last = now

    async def _load_published_progress(
        self, numbers: frozenset[str], since: datetime
    ) -> PublishedMessagesOutcomeCounts:
        # The log before its history: a message that is archived meanwhile is then found in one of them at least.
        lists = [self.list_messages(created_after=since, history=history) for history in (False, True)]
        found = {each.msg_no: each for listed in lists for each in [each async for each in listed]}
        messages = sorted((found[number] for number in numbers & found.keys()), key=lambda each: each.message_id)
        states = Counter(each.state for each in messages)
        quarantined = 0
        async for each in self.list_quarantine():
            if each.created_at < since:
                break
            quarantined += each.msg_no in numbers
        return PublishedMessagesOutcomeCounts(
            total=len(numbers),
            done=states[MessageState.DONE],
            given_up=states[MessageState.GIVEN_UP],
            quarantined=quarantined,
            messages=messages,
        )

    async def get(self, message_id: int) -> MessageDetails:
        """Return a message with its text, the answers of modules, and what operators did."""
        return MessageDetails.model_validate(await self._get(f"messages/{message_id}"))

    async def list_messages(
        self,
        *,
        topic: Topic | None = None,
        uprn: int | None = None,
        state: MessageState | None = None,
        module: Module | None = None,
        kind: WaitKind | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        history: bool = False,
    ) -> AsyncIterator[MessageWithModuleAnswers]:
        """Yield messages that match, newest first.

        Args:
            uprn: Either UPRN of a swap.
            module: Those that failed in this module.
            kind: Those that are not done for this reason.
            history: Done messages that were archived, instead of those of the log.
        """
        filters = build_filters(
            topic=topic,
            uprn=uprn,
            state=state,
            module=module,
            kind=kind,
            created_after=created_after,
            created_before=created_before,
            history=history,
        )
        async for each in self._list("messages", filters):
            yield MessageWithModuleAnswers.model_validate(each)

    async def retry(self, message_id: int, reason: str) -> MessageDetails:
        """Retry a failed message, as if it had never failed."""
        return MessageDetails.model_validate(await self._post(f"messages/{message_id}/retry", reason))

    async def retry_linked_messages(self, message_id: int, reason: str) -> RetryCounts:
        """Retry a failed message, and all failed messages that its addresses link to it."""
        return RetryCounts.model_validate(await self._post(f"messages/{message_id}/retry-chain", reason))

    async def retry_messages(
        self,
        reason: str,
        *,
        ids: Sequence[int] | None = None,
        topic: Topic | None = None,
        module: Module | None = None,
        kind: WaitKind | None = None,
    ) -> RetryCounts:
        """Retry failed messages that match, all without a condition."""
        conditions = _omit_none_values(ids=ids, topic=topic, module=module, kind=kind)
        return RetryCounts.model_validate(await self._post("messages:retry", reason, conditions))

    async def count_failed(
        self, *, topic: Topic | None = None, module: Module | None = None, kind: WaitKind | None = None
    ) -> FailedCount:
        """Count the failed messages that match: those that would be retried or skipped."""
        params = _omit_none_values(topic=topic, module=module, kind=kind)
        return FailedCount.model_validate(
            await self._transport.request_json("GET", "/v1/addresses/messages:count", params=params)
        )

    async def skip(self, message_id: int, reason: str, *, though_touched: bool = False) -> MessageDetails:
        """Give a message up for good: no module is called about it any more.

        Args:
            though_touched: Skip it even if a module has applied it, or may have: the modules then differ.
        """
        body = {"though_touched": though_touched}
        return MessageDetails.model_validate(await self._post(f"messages/{message_id}/skip", reason, body))

    async def skip_messages(
        self,
        reason: str,
        *,
        ids: Sequence[int] | None = None,
        topic: Topic | None = None,
        module: Module | None = None,
        kind: WaitKind | None = None,
    ) -> SkipCounts:
        """Give up failed messages that match for good, but none that a module has applied, or may have."""
        conditions = _omit_none_values(ids=ids, topic=topic, module=module, kind=kind)
        return SkipCounts.model_validate(await self._post("messages:skip", reason, conditions))

    async def get_cycle(self) -> CycleScheduleStatus:
        """Return whether cycles run, and how far the current one is."""
        return CycleScheduleStatus.model_validate(await self._get("cycle"))

    async def pause(self, reason: str) -> CycleScheduleStatus:
        """Pause cycles: a running one ends, and no other begins. Messages are still received."""
        return CycleScheduleStatus.model_validate(await self._post("cycle/pause", reason))

    async def resume(self, reason: str) -> CycleScheduleStatus:
        """Resume cycles; messages received meanwhile are loaded at once."""
        return CycleScheduleStatus.model_validate(await self._post("cycle/resume", reason))

    async def pause_module(self, module: Module, reason: str, *, paused: bool = True) -> None:
        """Pause a module, or resume it: from the next cycle on it is not called, and messages that need it wait.

        At its resume a cycle begins, with what waited for it.
        """
        options = {"modules": {module: {"paused": paused}}}
        signed = {"who": self._who, "reason": reason, "options": options}
        await self._transport.request_json("PATCH", "/v1/addresses/config", json=signed)

    async def resume_module(self, module: Module, reason: str) -> None:
        """Resume a module."""
        await self.pause_module(module, reason, paused=False)

    async def list_quarantine(
        self, *, topic: Topic | None = None, mended: bool = False
    ) -> AsyncIterator[QuarantinedMessage]:
        """Yield messages that could not be read, newest first; unmended ones, or those that were mended."""
        async for each in self._list("quarantine", build_filters(topic=topic, mended=mended)):
            yield QuarantinedMessage.model_validate(each)

    async def mend(self, quarantine_id: int, text: str, reason: str) -> MessageDetails:
        """Insert a corrected text into the log as a new message, and return that."""
        body = await self._post(f"quarantine/{quarantine_id}/mend", reason, {"text": text}, is_repeatable=False)
        return MessageDetails.model_validate(body)

    async def discard(self, quarantine_ids: Sequence[int], reason: str) -> int:
        """Delete messages from quarantine; return how many there were."""
        body = {"ids": list(quarantine_ids)}
        discarded: int = (await self._post("quarantine:discard", reason, body, is_repeatable=False))["discarded"]
        return discarded

    async def list_logical_deletes(
        self, *, removable: bool | None = None, purged: bool = False
    ) -> AsyncIterator[LogicalDelete]:
        """Yield deleted addresses that modules keep because of orders in flight, newest first.

        Args:
            removable: True for those that no module needs any more, False for the others.
            purged: Removed addresses instead of those that remain.
        """
        async for each in self._list("logical-deletes", build_filters(removable=removable, purged=purged)):
            yield LogicalDelete.model_validate(each)

    async def check_logical_deletes(self) -> None:
        """Ask all modules in the background which deleted addresses they still need."""
        await self._transport.request_json("POST", "/v1/addresses/logical-deletes:check")

    async def purge(self, address_ids: Sequence[int], reason: str) -> PurgeProgressAndResults:
        """Remove addresses from all modules that have no orders in flight of them; return the outcome."""
        body = await self._post(
            "logical-deletes:purge", reason, {"address_ids": list(address_ids)}, is_repeatable=False
        )
        purge = PurgeProgressAndResults.model_validate(body)
        while purge.state is PurgeOrComparisonState.RUNNING:
            await asyncio.sleep(FIRST_POLL_SECONDS)
            purge = PurgeProgressAndResults.model_validate(await self._get(f"logical-deletes/purges/{purge.purge_id}"))
        return purge

    async def compare(self) -> Comparison:
        """Compare all addresses of the four modules, and return the result once it is there."""
        comparison = Comparison.model_validate(
            await self._transport.request_json("POST", "/v1/addresses/comparisons", is_repeatable=False)
        )
        pause = FIRST_POLL_SECONDS
        while comparison.found is None and comparison.state is not PurgeOrComparisonState.FAILED:
            await asyncio.sleep(pause)
            pause = min(pause * 1.2, LONGEST_POLL_SECONDS)
            comparison = Comparison.model_validate(await self._get(f"comparisons/{comparison.comparison_id}"))
        return comparison

    async def _get(self, path: str) -> dict[str, Any]:
        return await self._transport.request_json("GET", f"/v1/addresses/{path}")

    async def _post(
        self, path: str, reason: str, body: Mapping[str, Any] | None = None, *, is_repeatable: bool = True
    ) -> dict[str, Any]:
        signed = {"who": self._who, "reason": reason, **(body or {})}
        return await self._transport.request_json(
            "POST", f"/v1/addresses/{path}", is_repeatable=is_repeatable, json=signed
        )

    async def _list(self, path: str, filters: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
        params = {**filters, "limit": str(PAGE_SIZE)}
        while True:
            page = await self._transport.request_json("GET", f"/v1/addresses/{path}", params=params)
            for each in page["items"]:
                yield each
            if page["next_cursor"] is None:
                return
            params["cursor"] = page["next_cursor"]


def _omit_none_values(**conditions: Any) -> dict[str, Any]:
    return {name: value for name, value in conditions.items() if value is not None}
