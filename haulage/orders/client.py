"""Client of orders: set platforms up, follow them, steer slices, and read the orders that were fetched."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar

from pydantic import BaseModel

from haulage.orders.models import (
    Backfill,
    ListedPlatform,
    Order,
    OrderMark,
    OrderSlice,
    Platform,
    PlatformConfig,
    PlatformSchedule,
    PlatformSetup,
    SliceChoice,
    SlicesActionResult,
    SliceState,
)
from haulage.transport import RetryingApiTransport, encode_path_step

FIRST_POLL_SECONDS = 0.2
LONGEST_POLL_SECONDS = 2.0
TRIGGER_SECONDS = 2.0
"""How often `fetch` asks to claim: a platform whose cycle runs takes no notice."""
PAGE_SIZE = 100
PLATFORMS = "/v1/platforms"

Model = TypeVar("Model", bound=BaseModel)


class Orders:
    """Client of orders. Platforms and slices need the administrator's key; orders and marks a key of their project.

    Requests are retried for `patience_seconds` while the API does not answer.

        async with Orders("https://haulage.example.com", admin_key) as orders:
            setup = PlatformSetup(project_id=project, kind="shopify", shop="s", base_url=url, is_paused=True)
            await orders.set_up("shop-1", setup)
            await orders.configure("shop-1", starttime="last 3 months", credentials="shop-1")
            await orders.resume("shop-1", who="ann", reason="it is configured")
            async for platform in orders.watch("shop-1", until=end_of_yesterday):
                print(platform.complete_to, platform.slices_open, platform.slices_failed)

    Raises:
        RequestRefused: By every method, if the API refuses the request.
        ApiUnreachable: By every method, if there is no answer within `patience_seconds`.
    """

    def __init__(self, base_url: str, key: str, *, patience_seconds: float = 60.0) -> None:
        self._transport = RetryingApiTransport(base_url, key, patience_seconds)

    async def __aenter__(self) -> Orders:
        await self._transport.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()

    # platforms

    async def set_up(self, platform: str, setup: PlatformSetup) -> Platform:
        """Set up a platform under a name of your choice, or change its address and who receives its alarms."""
        body = setup.model_dump(mode="json", exclude_defaults=True)
        return Platform.model_validate(await self._transport.request_json("PUT", _build_path(platform), json=body))

    async def configure(self, platform: str, **options: Any) -> PlatformConfig:
        """Change options of a platform, or with `default` of all; None takes a value from the level above."""
        return await self._send_and_parse(PlatformConfig, "PATCH", platform, "config", options)

    async def get_config(self, platform: str) -> PlatformConfig:
        """Return the configuration in force, and where each value comes from."""
        return await self._send_and_parse(PlatformConfig, "GET", platform, "config")

    async def get(self, platform: str) -> Platform:
        """Return the state of a platform."""
        return Platform.model_validate(await self._transport.request_json("GET", _build_path(platform)))

    async def list_platforms(self, *, project_id: str | None = None) -> AsyncIterator[ListedPlatform]:
        """Yield the platforms, all or those of a project, newest first."""
        async for each in self._iterate_items(PLATFORMS, {"project_id": project_id}):
            yield ListedPlatform.model_validate(each)

    async def watch(self, platform: str, *, until: datetime) -> AsyncIterator[Platform]:
        """Yield the state of a platform whenever its watermarks or slices change, until it is complete to a time.

        A slice that failed holds `complete_to` back: look at `slices_failed`, and stop or mend its cause.
        """
        async for each in self._poll_until_ended(
            platform, lambda now: now.complete_to is not None and now.complete_to >= until
        ):
            yield each

    async def fetch(self, platform: str, *, until: datetime | None = None) -> AsyncIterator[Platform]:
        """Claim what has settled, and yield the state of a platform as it changes until all of that is stored.

        It ends, too, where nothing more can be done: when all slices have ended and some failed, or the platform has
        a `trouble`.

        Args:
            until: The time up to which orders are to be stored; by default as far as they have settled.
        """
        asked_at = -TRIGGER_SECONDS

        async def trigger_cycle_at_intervals() -> None:
            nonlocal asked_at
            if time.monotonic() - asked_at >= TRIGGER_SECONDS:
                asked_at = time.monotonic()
                await self.trigger(platform)

        def has_trouble_or_stored_all(now: Platform) -> bool:
            if now.trouble is not None or (now.slices_failed and not now.slices_open):
                return True
            return (
                now.has_stored_all_settled
                if until is None
                else now.complete_to is not None and now.complete_to >= until
            )

        async for each in self._poll_until_ended(platform, has_trouble_or_stored_all, trigger_cycle_at_intervals):
            yield each

    async def _poll_until_ended(
        self,
        platform: str,
        has_ended: Callable[[Platform], bool],
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> AsyncIterator[Platform]:
        """Yield the state whenever it changes until it has ended; prepare each look at it."""
        last, pause = None, FIRST_POLL_SECONDS
        while True:
            if prepare is not None:
                await prepare()
            now = await self.get(platform)
            counts = now.slices_open, now.slices_failed
            seen = (now.claimed_to, now.complete_to, *counts, now.trouble, now.unserved_since)
            is_last = has_ended(now)
            if seen != last or is_last:
                yield now
            if is_last:
                return
            last = seen
            await asyncio.sleep(pause)
            pause = min(pause * 1.2, LONGEST_POLL_SECONDS)

    async def pause(self, platform: str, *, who: str, reason: str) -> PlatformSchedule:
        """Pause a platform: slices that are being read are finished, no other is claimed."""
        return await self._send_and_parse(PlatformSchedule, "POST", platform, "pause", {"who": who, "reason": reason})

    async def resume(self, platform: str, *, who: str, reason: str) -> PlatformSchedule:
        """Resume a paused platform."""
        return await self._send_and_parse(PlatformSchedule, "POST", platform, "resume", {"who": who, "reason": reason})

    async def remove(self, platform: str, *, who: str, reason: str) -> None:
        """Remove a paused platform with its ledger and its configuration; its orders stay."""
        await self._transport.request_json("POST", _build_path(platform, "remove"), json={"who": who, "reason": reason})

    async def trigger(self, platform: str) -> PlatformSchedule:
        """Claim now what has settled, instead of within a minute."""
        return await self._send_and_parse(PlatformSchedule, "POST", platform, "trigger")

    # slices

    async def list_slices(
        self,
        platform: str,
        *,
        state: SliceState | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        has_failed_sweep: bool = False,
    ) -> AsyncIterator[OrderSlice]:
        """Yield the slices of the ledger: all, those in a state or whose last sweep failed, or that overlap a time."""
        sweep = "failed" if has_failed_sweep else None
        filters = {"state": state, "sweep": sweep, "start": _format_timestamp(start), "end": _format_timestamp(end)}
        async for each in self._iterate_items(_build_path(platform, "slices"), filters):
            yield OrderSlice.model_validate(each)

    async def redo(self, platform: str, choice: SliceChoice) -> SlicesActionResult:
        """Read slices again: failed ones to complete them, complete ones to refresh their orders."""
        return await self._send_and_parse(
            SlicesActionResult, "POST", platform, "slices:redo", _build_choice_body(choice)
        )

    async def split(self, platform: str, choice: SliceChoice) -> SlicesActionResult:
        """Split failed slices into halves, which are read next."""
        return await self._send_and_parse(
            SlicesActionResult, "POST", platform, "slices:split", _build_choice_body(choice)
        )

    async def skip(self, platform: str, choice: SliceChoice, reason: str) -> SlicesActionResult:
        """Give failed slices up: their orders may be missing for ever; the ledger keeps the reason."""
        return await self._send_and_parse(
            SlicesActionResult, "POST", platform, "slices:skip", {**_build_choice_body(choice), "reason": reason}
        )

    async def start_backfill(
        self, platform: str, start: datetime, end: datetime, *, who: str | None = None
    ) -> Backfill:
        """Read the complete slices of a time again, 12 hours at most; no watermark moves."""
        body = {"start": _format_timestamp(start), "end": _format_timestamp(end), "who": who}
        return await self._send_and_parse(Backfill, "POST", platform, "backfill", body)

    async def get_backfill(self, platform: str, backfill_id: str) -> Backfill:
        """Return the state of a backfill."""
        return await self._send_and_parse(Backfill, "GET", platform, f"backfills/{encode_path_step(backfill_id)}")

    # orders

    async def list_orders(
        self,
        *,
        platform: str | None = None,
        order_id: str | None = None,
        modified_after: datetime | None = None,
        modified_before: datetime | None = None,
    ) -> AsyncIterator[Order]:
        """Yield the stored orders that match, last modified first."""
        filters = {
            "platform": platform,
            "order_id": order_id,
            "modified_after": _format_timestamp(modified_after),
            "modified_before": _format_timestamp(modified_before),
        }
        async for each in self._iterate_items("/v1/orders", filters):
            yield Order.model_validate(each)

    async def create_mark(self, platform: str) -> OrderMark:
        """Create a mark of now, whose `source_url` a download exports. It needs a key of the platform's project."""
        body = await self._transport.request_json("POST", "/v1/orders/marks", json={"platform": platform})
        return OrderMark.model_validate(body)

    async def _send_and_parse(
        self, model: type[Model], method: str, platform: str, path: str, body: dict[str, Any] | None = None
    ) -> Model:
        options: dict[str, Any] = {} if body is None else {"json": body}
        return model.model_validate(await self._transport.request_json(method, _build_path(platform, path), **options))

    async def _iterate_items(self, path: str, filters: dict[str, str | None]) -> AsyncIterator[Any]:
        params = {name: str(value) for name, value in filters.items() if value is not None} | {"limit": str(PAGE_SIZE)}
        while True:
            page = await self._transport.request_json("GET", path, params=params)
            for each in page["items"]:
                yield each
            if page["next_cursor"] is None:
                return
            params["cursor"] = page["next_cursor"]


def _build_path(platform: str, rest: str = "") -> str:
    return f"{PLATFORMS}/{encode_path_step(platform)}" + (f"/{rest}" if rest else "")


def _format_timestamp(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _build_choice_body(choice: SliceChoice) -> dict[str, Any]:
    return choice.model_dump(mode="json", exclude_defaults=True)
