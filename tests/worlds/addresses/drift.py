"""Drift: what the product's comparison of modules finds."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import aiohttp
import openpyxl

from tests.support.addresses import Addresses
from tests.support.waiting import eventually


async def compare_modules(addresses: Addresses) -> tuple[int, frozenset[int]]:
    """Return how many UPRNs differ between modules by the product's comparison, and the UPRNs of its workbook."""
    report = (await addresses.ask("POST", "comparisons")).body["comparison_id"]

    async def find() -> Mapping[str, Any] | None:
        found: Mapping[str, Any] | None = (await addresses.ask("GET", f"comparisons/{report}")).body["found"]
        return found

    found = await eventually(find)
    assert found is not None
    async with aiohttp.ClientSession() as session, session.get(found["url"]) as answer:
        book = openpyxl.load_workbook(io.BytesIO(await answer.read()))
    _, *rows = book["addresses"].iter_rows(values_only=True)
    return found["different"], frozenset(int(str(row[0])) for row in rows)
