"""What tests of addresses do beside the page: publish changes, break modules, and read the state of messages."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.async_api import Locator, Page

from domain.addresses.messages import PublishedMessage, Topic
from infra.database import Database
from sims.oss.scenario import OssAction, OssRule, OssScenario
from stores.addresses.inbox import DeliveredMessage, MessageLogAndQuarantineWriter
from tests.console.installation import Console
from tests.support.waiting import eventually

SIGNED = {"who": "setup", "reason": "a test begins"}
MESSAGE_MAX_BYTES = 1_000_000
LARGEST = 2**63 - 1
BASE_PATH = "/console/addresses"


@dataclass(frozen=True)
class Operators:
    """The routes of operators, which all tests share, and UPRNs that only this test uses."""

    console: Console
    base: int = field(default_factory=lambda: 10**11 + secrets.randbelow(10**6) * 1_000)

    @property
    def database(self) -> Database:
        """Where the log is."""
        return self.console.services.database

    def uprn(self, number: int) -> int:
        """One of a thousand."""
        return self.base + number

    async def ask(self, method: str, path: str, **options: Any) -> Any:
        """Send a request with the admin key, and return the body of the response."""
        reply = await self.console.api_client.as_admin(method, f"/v1/addresses/{path}", **options)
        assert reply.status < 300, reply.body
        return reply.body

    async def publish(self, topic: Topic, **said: Any) -> int:
        """A change; its id in the log."""
        number = secrets.token_hex(8)
        await self.store(topic, json.dumps(said).encode(), number)
        async with self.database.connection() as connection:
            id_: int = await connection.fetchval("SELECT id FROM im_infi_addr_sync_log WHERE msg_no = $1", number)
        return id_

    async def store(self, topic: Topic, data: bytes, number: str = "") -> None:
        """What Pub/Sub delivered, whatever it is."""
        message = PublishedMessage(message_id=number or secrets.token_hex(8), data=data)
        await MessageLogAndQuarantineWriter(self.database, MESSAGE_MAX_BYTES).store_messages_or_quarantine_them(
            [DeliveredMessage(topic, message)]
        )

    async def upsert(self, number: int, **record: Any) -> int:
        """An address as it is from now on."""
        uprn = self.uprn(number)
        return await self.publish(Topic.CREATE_UPDATE, uprn=uprn, address_id=uprn, record=record)

    async def run_cycles(self, *ids: int) -> None:
        """Wake the cycle, and wait until these messages are done or given up."""
        await self.ask("POST", "cycle/resume", json=SIGNED)
        for id_ in ids:
            await self.wait_for_end(id_)

    async def wait_for_end(self, id_: int) -> str:
        """How a message ended."""

        async def end() -> str:
            state: str = (await self.message(id_))["state"]
            return state if state in ("done", "given_up") else ""

        return await eventually(end)

    async def message(self, id_: int) -> dict[str, Any]:
        """All that is known of a message."""
        known: dict[str, Any] = await self.ask("GET", f"messages/{id_}")
        return known

    @asynccontextmanager
    async def break_module(self, module: str, numbers: Iterable[int]) -> AsyncIterator[None]:
        """Let operations of these UPRNs fail in a module."""
        uprns = frozenset(self.uprn(number) for number in numbers)
        async with self.apply_rule(OssRule(action=OssAction.FAIL, modules=frozenset({module}), uprns=uprns)):
            yield

    @asynccontextmanager
    async def apply_rule(self, rule: OssRule) -> AsyncIterator[None]:
        """Let something go wrong with the modules."""
        self.console.oss.set(OssScenario(rules=(rule,)))
        try:
            yield
        finally:
            self.console.oss.set(OssScenario())

    async def create_given_up(self, *numbers: int, module: str = "wfm") -> list[int]:
        """Changes that failed in a module as often as they may, and that can succeed now."""
        async with self.break_module(module, numbers):
            ids = [await self.upsert(number, street="Downing Street") for number in numbers]
            await self.run_cycles(*ids)
        return ids


def find_rows(page: Page) -> Locator:
    """The rows of the list."""
    return page.locator("data-list tbody tr")


async def sign(page: Page, action: str, reason: str = "the module is well again") -> None:
    """Say who one is, and why, and press the button."""
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Your name").fill("ann")
    await dialog.get_by_label("Reason").fill(reason)
    await dialog.get_by_role("button", name=action, exact=True).click()
