"""A plain aiohttp and pandas script, as a business system would write it: five pages at a time, appended to a file."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pandas as pd

from bench.peers.meter import measure_run

AT_A_TIME = 5


async def export(url: str, page_size: int, path: Path) -> None:
    """Ask for the total, then for all pages in order."""
    async with aiohttp.ClientSession() as session:
        total = (await _get(session, f"{url}&page=0&page_size=1"))["total"]
        pages = -(-total // page_size)
        with path.open("w", newline="") as file:
            for first in range(0, pages, AT_A_TIME):
                numbers = range(first, min(first + AT_A_TIME, pages))
                asking = (_get(session, f"{url}&page={page}&page_size={page_size}") for page in numbers)
                rows = [row for answer in await asyncio.gather(*asking) for row in answer["data"]]
                pd.DataFrame(rows).to_csv(file, index=False, header=first == 0)


async def _get(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    async with session.get(url) as answer:
        body: dict[str, Any] = await answer.json()
        return body


if __name__ == "__main__":
    source_url, size, folder = sys.argv[1:]
    with measure_run():
        asyncio.run(export(source_url, int(size), Path(folder) / "rows.csv"))
