"""The source of a world: what it answers is a function of the world, the page and how often that was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.worlds import dice
from tests.worlds.answers import BENDS, Answer, Bending, send
from tests.worlds.downloads import paging, rows
from tests.worlds.downloads.flaws import KINDS, DownloadFlaws
from tests.worlds.downloads.world import HEADER, TABLES_MAX, DownloadWorld
from tests.worlds.flaws import Flaw

HOST = "127.0.0.1"
PAGE_SECONDS = 8.0
"""Timeout of a page: long for a busy machine, short for one that trickles."""
TOO_LONG_SECONDS = PAGE_SECONDS + 1
QUICK_ROWS = 20
WRONG_ONCE = ("total_moves", "cached", "other_encoding", "cut_json")
"""Flaws that, where they pass, are gone at the second try: the same wrong answer twice is believed."""
SAYS_MORE = {"goes_on_for_ever": "true", "says_it_ends": "false"}


@dataclass(frozen=True)
class PageRequest:
    """One request of a page: its number and size as they were sent, and the how manieth time."""

    page: int
    size: int
    attempt: int


class WorldSource:
    """Answers for one world, and notes what went wrong."""

    def __init__(self, world: DownloadWorld) -> None:
        self.world = world
        self.fired: set[str] = set()
        self.headers: set[str | None] = set()
        """What it was sent of the header that sources may want."""
        self._attempts: Counter[tuple[int, int]] = Counter()
        self._requests = 0
        self._has_hung = False

    def ask(self, page: int, size: int) -> Answer:
        """The answer to one request."""
        page -= self.world.counts_from
        self._requests += 1
        self._attempts[page, size] += 1
        asked = PageRequest(page, size, self._attempts[page, size])
        right = self._right(self._of_the_cache(asked))
        answer = Answer(right) if isinstance(right, bytes) else Answer(b'{"error":"no such page"}', status=right)
        # What is packed is packed last.
        for flaw in sorted(self.world.flaws, key=lambda each: each.name.startswith("gzip")):
            self._bend(flaw, asked, answer)
        return answer

    def _of_the_cache(self, asked: PageRequest) -> PageRequest:
        """Another page in its place, where a cache answers; what goes wrong in the one that is not sent is not seen."""
        for flaw in self.world.flaws:
            if flaw.name == "cached" and self._is_hit(flaw, asked) and asked.page > 0 and asked.size > 1:
                other = PageRequest(asked.page - 1 - flaw.dial % asked.page, asked.size, asked.attempt)
                both = [paging.read_page(self.world, each.page, each.size) for each in (asked, other)]
                if both[0] != both[1]:
                    self.fired.add(flaw.name)
                return other
        return asked

    def _right(self, asked: PageRequest) -> bytes | int:
        """The body as the source means it, before anything happens to it on the way."""
        numbers = self._numbers(asked)
        if isinstance(numbers, int):
            return numbers
        total = self._total(asked, len(numbers))
        members = [] if total is None else [f'"total":{total}']
        for name in filter(self.world.has, SAYS_MORE):
            self.fired.add(name)
            members.append(f'"force_continue":{SAYS_MORE[name]}')
        if any(rows.is_bent(self.world, n) for n in numbers):
            self._fire(*(name for name, kind in KINDS.items() if kind.group is DownloadFlaws.CONTENT))
        members.append(f'"data":[{",".join(rows.write_row(self.world, n) for n in numbers)}]')
        page = "{" + ",".join(members) + "}"
        return (f'{{"status":200,"msg":"","data":{page}}}' if self.world.is_wrapped else page).encode()

    def _numbers(self, asked: PageRequest) -> list[int] | int:
        found = paging.read_page(self.world, asked.page, asked.size)
        if found != paging.read_right_page(self.world, asked.page, asked.size):
            self._fire(*paging.PAGINGS)
        if isinstance(found, int):
            return found
        kept = [n for n in found if rows.is_kept(self.world, n)]
        if kept != found:
            self.fired.add("filtered")
        return kept

    def _total(self, asked: PageRequest, count: int) -> int | None:
        world, total = self.world, self.world.rows
        if not world.tells_total:
            return None
        for flaw in world.flaws:
            match flaw.name:
                case "total_of_page":
                    total = count
                case "total_is_page_size":
                    total = asked.size
                case "total_in_pages":
                    total = -(-world.rows // asked.size)
                case "total_capped":
                    total = min(total, world.page_size * (1 + flaw.dial % 3))
                case "total_moves" if self._is_hit(flaw, asked):
                    total += 1 if flaw.passes else self._requests
        if total != world.rows:
            self._fire(*(flaw.name for flaw in world.flaws if flaw.name.startswith("total")))
        return total

    def _is_hit(self, flaw: Flaw, asked: PageRequest) -> bool:
        """Whether an answer goes wrong: what passes hits first tries here and there, what stays all from a page on."""
        if flaw.passes:
            tries = 1 if flaw.name in WRONG_ONCE else 1 + flaw.dial % 3
            return asked.attempt <= tries and dice.share(self.world.seed, flaw.name, asked.page, asked.size) < 0.5
        pages = max(1, -(-self.world.rows // self.world.page_size))
        return asked.size > 1 and asked.page >= flaw.dial % pages

    def _is_too_slow(self, flaw: Flaw, asked: PageRequest) -> bool:
        """Whether an answer takes longer than the timeout: once, or all large ones from a page on."""
        if flaw.name == "hangs_once":
            pages = max(1, -(-self.world.rows // self.world.page_size))
            # Once, and not again where the page is asked for in fewer rows.
            hangs = not self._has_hung and asked.page == flaw.dial % pages and asked.size > 1
            self._has_hung |= hangs
            return hangs
        return asked.size > max(QUICK_ROWS, self.world.page_size // 5) and self._is_hit(flaw, asked)

    def _bend(self, flaw: Flaw, asked: PageRequest, answer: Answer) -> None:
        before = answer.body
        match flaw.name:
            case "byte_order_mark":
                answer.body = b"\xef\xbb\xbf" + answer.body
            case "header_lies":
                answer.headers["Content-Type"] = "application/json; charset=latin-1"
                self.fired.add(flaw.name)
            case "other_encoding" if self._is_hit(flaw, asked):
                answer.body = answer.body.decode(errors="replace").encode("gb18030")
            case "hangs_once" | "large_pages_time_out" if self._is_too_slow(flaw, asked):
                answer.pause_seconds = TOO_LONG_SECONDS
                self.fired.add(flaw.name)
            case "retry_differs" if self._is_hit(flaw, asked):
                answer.body = answer.body.replace(b'"id":1', b'"id":9')
                answer.cut_at = Bending(asked.page, asked.attempt, flaw.dial, flaw.passes).place(len(answer.body))
                self.fired.add(flaw.name)
            case name if name in BENDS and self._is_hit(flaw, asked):
                BENDS[name](answer, Bending(asked.page, asked.attempt, flaw.dial, flaw.passes))
                self.fired.add(name)
        if answer.body != before:
            self.fired.add(flaw.name)

    def _fire(self, *names: str) -> None:
        self.fired |= {name for name in names if self.world.has(name)}


@dataclass
class WorldSources:
    """The sources of all worlds. A source is reached at each of some hosts: only the port differs, which is enough."""

    bases: list[str] = field(default_factory=list)
    worlds: dict[str, WorldSource] = field(default_factory=dict)

    def add(self, name: str, world: DownloadWorld, table: int) -> tuple[WorldSource, str]:
        """Open the source of a world's table; its address."""
        name = f"{name}-{table}"
        source = self.worlds[name] = WorldSource(world)
        return source, f"{self.bases[table]}/{name}/rows"


@asynccontextmanager
async def running_sources() -> AsyncIterator[WorldSources]:
    """Serve on free ports of 127.0.0.1, one for each table that a world may have."""
    sources = WorldSources()
    app = web.Application()

    async def answer(request: web.Request) -> web.StreamResponse:
        source = sources.worlds[request.match_info["world"]]
        source.headers.add(request.headers.get(HEADER))
        page, size = int(request.query["page"]), int(request.query["page_size"])
        return await send(request, source.ask(page, size))

    app.router.add_get("/{world}/rows", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        for _ in range(TABLES_MAX):
            await web.TCPSite(runner, HOST, 0).start()
        sources.bases = [f"http://{host}:{port}" for host, port, *_ in runner.addresses]
        yield sources
    finally:
        await runner.cleanup()
