"""Polling pages: an answer that arrives late is not drawn over a newer one."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from playwright.async_api import Page, Route, expect

from api import console
from tests.console.installation import Console, Project
from tests.console.operators import Operators
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

REMEMBER = """
(element) => {
  window.seen = [element.querySelector(".lead .badge").textContent];
  const look = () => {
    const text = element.querySelector(".lead .badge")?.textContent;
    if (text && text !== window.seen.at(-1)) window.seen.push(text);
  };
  new MutationObserver(look).observe(element, { subtree: true, childList: true, characterData: true });
}
"""
RULES = """
async (base) => {
  const { latestOnly } = await import(`${base}/js/polling.js`);
  const [drawn, failed, asked] = [[], [], []];
  const ask = () => new Promise((answer, refuse) => asked.push({ answer, refuse }));
  const look = latestOnly(ask, (value) => drawn.push(value), (problem) => failed.push(problem.message));
  const refusal = (message) => Object.assign(new Error(message), { name: "Problem" });
  const looks = [look(), look(), look()];
  asked[1].answer("late"), asked[2].answer("newest"), asked[0].refuse(refusal("late"));
  await Promise.all(looks);
  const known = look();
  look.take("known");
  asked[3].answer("older than what is known");
  const refused = look();
  asked[4].refuse(refusal("newest"));
  await Promise.all([known, refused]);
  return { drawn, failed };
}
"""


@dataclass
class Late:
    """A route whose next answer is held back; those that are asked for after it pass."""

    asked: int = 0
    caught: asyncio.Event = field(default_factory=asyncio.Event)
    free: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, route: Route) -> None:
        """Let an answer pass, or keep what it is now for later."""
        self.asked += 1
        if self.asked > 1:
            await route.continue_()
            return
        answer = await route.fetch()
        self.caught.set()
        await self.free.wait()
        await route.fulfill(response=answer)

    async def let_go(self) -> None:
        """Deliver it, and wait until the page has taken it: only then it asks again."""
        asked = self.asked
        self.free.set()
        await eventually(lambda: self.asked > asked)


@asynccontextmanager
async def held_back(page: Page, path: str) -> AsyncIterator[Late]:
    """Hold the answer to the page's next look back, and remember every state that it shows from now on."""
    await page.locator("main").evaluate(REMEMBER)
    late, address = Late(), re.compile(re.escape(path) + r"(\?|$)")
    await page.route(address, late.handle)
    await late.caught.wait()
    yield late
    await page.unroute(address)


async def list_states_over_time(page: Page, path: str, was: str, deed: Callable[[], Awaitable[None]]) -> list[str]:
    """The states that a page shows while an answer from before a deed comes after that to the deed."""
    await expect(page.locator(".lead")).to_contain_text(was)
    async with held_back(page, path) as late:
        await deed()
        await expect(page.locator(".lead")).not_to_contain_text(was)
        await late.let_go()
    seen: list[str] = await page.evaluate("window.seen")
    return seen


async def test_what_a_task_was_is_not_drawn_over_what_it_is(page: Page, console: Console, project: Project) -> None:
    """A read that began before the task was cancelled changes nothing any more."""
    queue = console.tasks(project, f"late.{secrets.token_hex(4)}")
    await queue.register()
    task_id = await queue.create()
    await page.goto(f"/console/tasks/tasks/{task_id}")

    async def cancel() -> None:
        await page.get_by_role("button", name="Cancel").click()
        await page.get_by_role("dialog").get_by_role("button", name="Cancel 1 task").click()

    assert await list_states_over_time(page, "/v1/get_task", "Pending", cancel) == ["Pending", "Cancelled"]


async def test_what_a_message_was_is_not_drawn_over_what_a_deed_answered(admin_page: Page, console: Console) -> None:
    """The answer to a deed is newer than every look before it."""
    [id_] = await Operators(console).create_given_up(1)
    await admin_page.goto(f"/console/addresses/messages/{id_}")

    async def retry() -> None:
        await admin_page.get_by_role("button", name="Retry").click()
        dialog = admin_page.get_by_role("dialog")
        await dialog.get_by_label("Your name").fill("Ada")
        await dialog.get_by_label("Reason").fill("mended")
        await dialog.get_by_role("button", name="Retry").click()

    seen = await list_states_over_time(admin_page, f"/v1/addresses/messages/{id_}", "Given up", retry)
    assert seen.count("Given up") == 1


async def test_only_the_newest_answer_counts(page: Page) -> None:
    """However many are on their way, in whatever order they come, and whichever of them fail."""
    await page.goto("/console")
    answered = await page.evaluate(RULES, console.load_console_files().versioned_path)
    assert answered == {"drawn": ["newest", "known"], "failed": ["newest"]}
