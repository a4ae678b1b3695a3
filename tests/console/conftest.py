"""Fixtures of the console's tests: one installation and one Chromium for all, and pages that watch themselves.

They run one after the other in one process (`tests/support/scheduling.py`).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, async_playwright

from dev.embedded.stack import EmbeddedStack
from tests.console import installation
from tests.console.browsing import Troubles, launch_browser, signed_in
from tests.console.installation import Console, Project
from tests.support.orders import Orders
from tests.support.requirements import CHROMIUM
from tests.support.stack import Namespaces


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where the browser is."""
    return CHROMIUM.require()


@pytest.fixture(scope="package")
async def console(chromium: str, stack: EmbeddedStack, template: str, namespaces: Namespaces) -> AsyncIterator[Console]:
    """The started installation: API, worker and stand-ins. All tests share it, and each has projects of its own."""
    folder = Path(tempfile.mkdtemp(prefix="haulage-console-"))
    try:
        with namespaces.keeping_engine():
            async with installation.running(stack, template, folder) as console:
                yield console
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="package")
async def browser(chromium: str) -> AsyncIterator[Browser]:
    """A Chromium without a window."""
    async with async_playwright() as playwright, launch_browser(playwright, chromium) as browser:
        yield browser


@pytest.fixture
async def project(console: Console) -> Project:
    """A tenant of the test's own."""
    return await console.make_project()


@pytest.fixture
def orders(console: Console, project: Project) -> Orders:
    """Orders of the test's project."""
    return console.orders(project)


@pytest.fixture
async def troubles() -> AsyncIterator[Troubles]:
    """What went wrong in this test's pages; `troubles.expect("404 GET /v1/downloads/.*")` names what is meant to."""
    troubles = Troubles()
    yield troubles
    assert troubles.found == []


@pytest.fixture
async def page(browser: Browser, console: Console, project: Project, troubles: Troubles) -> AsyncIterator[Page]:
    """A page on which `project` has signed in; `await page.goto("/console/downloads")`."""
    async with signed_in(browser, console.address, project.key, troubles) as page:
        yield page


@pytest.fixture
async def admin_page(browser: Browser, console: Console, troubles: Troubles) -> AsyncIterator[Page]:
    """A page on which the admin has signed in."""
    async with signed_in(browser, console.address, console.admin_key, troubles) as page:
        yield page
