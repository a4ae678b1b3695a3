"""The sample paged source: `GET /rows?rows=…&seed=…&page=…&page_size=…`, with faults by seed and counted requests."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlencode

from aiohttp import web
from pydantic import Field, ValidationError, field_validator

from sims import process, rows
from sims.common import PageTable, add_lie, add_page, describe_errors
from sims.faults import Faults, Kind

HOST = "127.0.0.1"

_CANNED: Mapping[Kind | None, tuple[int, str, str]] = {
    Kind.SERVER_ERROR: (503, "application/json", '{"error":"busy"}'),
    Kind.TOO_MANY: (429, "application/json", '{"error":"slow down"}'),
    Kind.NOT_FOUND: (404, "application/json", '{"error":"no such list"}'),
    Kind.NOT_JSON: (200, "text/html", "<html><body>Please log in</body></html>"),
}


class SourceRequest(Faults):
    """The parameters of a request; others are taken for filters and ignored."""

    rows: int = Field(default=1_000, ge=0, le=10**9)
    page: int = Field(default=0, ge=0)
    page_size: int = Field(default=500, ge=1, le=1_000_000)
    delay_ms: int = Field(default=0, ge=0, description="how long each answer takes")
    tag: str = Field(default="", description="whose requests these are, in the counts")
    envelope: bool = Field(default=False, description="wrap the page as {status, msg, data}")
    no_total: bool = Field(default=False, description="do not tell the total")
    gaps: bool = Field(default=False, description="leave out every third row of the second half after paging")
    template: str = Field(default="", description="JSON that stands in every answer as `template`")
    header: str = Field(default="", description="the same as `header`")
    footer: str = Field(default="", description="the same as `footer`")
    grouped: str = Field(default="", description="answer an object: the rows of each value that this key has")
    same_pages: bool = Field(default=False, description="answer every page as the first")
    away_after: int = Field(default=0, ge=0, description="answer so many requests of this tag before being away")
    away_for: int = Field(default=0, ge=0, description="then answer 503 to so many")
    late_from: int | None = Field(default=None, ge=0, description="the first row that has one more key, `late`")
    twice_from: int | None = Field(default=None, ge=0, description="the first row that has the key `city` twice")
    pad: int = Field(default=0, ge=0, description="one more key, `pad`, with a text of so many characters")
    whole: bool = Field(default=False, description="answer all rows, whatever page is asked for")
    nan_at: int | None = Field(default=None, ge=0, description="the row whose amount is NaN")

    @field_validator("template", "header", "footer")
    @classmethod
    def _json(cls, text: str) -> str:
        if text:
            json.loads(text)
        return text


@dataclass
class Source:
    """A running source."""

    base: str = ""
    counts: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    """How many requests of each tag there were, of any page."""
    callers: dict[str, set[str]] = field(default_factory=dict)
    """What callers of each tag said of themselves in the header `X-Caller`."""
    lies: bool = False
    """Whether the first row of each page says another city than is true."""

    def set_lying(self, lies: bool) -> None:
        """Begin or end to answer wrong rows."""
        self.lies = lies

    def describe(self) -> list[PageTable]:
        """Return the lists that can be asked for, and the requests so far, for the page."""
        examples = [
            {"address": self.url(rows=50_000), "what": "50,000 orders; every seed makes others"},
            {"address": self.url(rows=50_000, faults="5xx,reset", rate=0.1), "what": "a tenth of the answers fails"},
            {"address": self.url(rows=50_000, delay_ms=50), "what": "slow answers"},
        ]
        asked = [{"tag": tag or "(none)", "requests": f"{count:,}"} for tag, count in self.asked.items()]
        row = [rows.row(0, 0)]
        return [PageTable("Lists to export", examples), PageTable("A row", row), PageTable("Requests so far", asked)]

    def url(self, **parameters: str | float) -> str:
        """The address that an export is given: everything but page and page_size."""
        return f"{self.base}/rows?{urlencode(parameters)}"

    def forget(self) -> None:
        """Begin all counts anew."""
        for counted in (self.counts, self.asked, self.callers):
            counted.clear()

    def requests(self, *, tag: str = "", page_size: int) -> Mapping[int, int]:
        """How often each page was asked for."""
        return {page: count for (t, size, page), count in self.counts.items() if (t, size) == (tag, page_size)}


SOURCE = web.AppKey("source", Source)


@asynccontextmanager
async def running_source(port: int = 0) -> AsyncIterator[Source]:
    """Serve on 127.0.0.1; port 0 picks a free one."""
    source = Source()
    app = web.Application()
    app[SOURCE] = source
    app.router.add_get("/rows", _rows)
    app.router.add_get("/stats", _stats)
    add_page(app, "Sample source", "Stands in for a paged source that downloads export.", source.describe)
    add_lie(app, source.set_lying)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, port)
        await site.start()
        host, bound_port = runner.addresses[0][:2]
        source.base = f"http://{host}:{bound_port}"
        yield source
    finally:
        await runner.cleanup()


async def _rows(request: web.Request) -> web.StreamResponse:
    try:
        ask = SourceRequest.model_validate(dict(request.query))
    except ValidationError as error:
        return web.json_response({"error": describe_errors(error)}, status=400)
    counts = request.app[SOURCE].counts
    counts[ask.tag, ask.page_size, ask.page] += 1
    attempt = counts[ask.tag, ask.page_size, ask.page]
    asked = request.app[SOURCE].asked
    asked[ask.tag] += 1
    if caller := request.headers.get("X-Caller"):
        request.app[SOURCE].callers.setdefault(ask.tag, set()).add(caller)
    if 0 < asked[ask.tag] - ask.away_after <= ask.away_for:
        return web.json_response({"error": "away"}, status=503)
    fault = ask.pick(ask.page, attempt)
    delay_ms = ask.delay_ms + (ask.slow_ms if fault is Kind.SLOW else 0)
    if delay_ms:
        await asyncio.sleep(delay_ms / 1_000)
    return await _answer(request, ask, fault, attempt)


async def _answer(request: web.Request, ask: SourceRequest, fault: Kind | None, attempt: int) -> web.StreamResponse:
    if fault in _CANNED:
        status, content_type, text = _CANNED[fault]
        headers = {"Retry-After": ask.retry_after} if status == 429 else None
        return web.Response(status=status, content_type=content_type, text=text, headers=headers)
    body = _page(ask, fault, attempt)
    if request.app[SOURCE].lies:
        body = re.sub(rb'"city":"[^"]+"', b'"city":"Nowhere"', body, count=1)
    if fault is Kind.RESET:
        return await _reset(request, body)
    return web.Response(body=body[:-20] if fault is Kind.BROKEN_JSON else body, content_type="application/json")


def _page(ask: SourceRequest, fault: Kind | None, attempt: int) -> bytes:
    if ask.whole:
        ask = ask.model_copy(update={"page": 0, "page_size": ask.rows})
    start = min(0 if ask.same_pages else ask.page * ask.page_size, ask.rows)
    stop = min(start + ask.page_size, ask.rows)
    total = ask.rows
    match fault:
        case Kind.NO_DATA:
            return b'{"total":%d}' % total
        case Kind.NOT_OBJECTS:
            arrays = [list(rows.row(ask.seed, n).values()) for n in range(start, stop)]
            return b'{"total":%d,"data":%b}' % (total, json.dumps(arrays, default=float).encode())
        case Kind.SHORT:
            stop = start + (stop - start) // 2
        case Kind.TOTAL:
            total += ask.page + attempt
    page = b"{%b}" % b",".join(_members(ask, start, stop, total))
    return b'{"status":200,"msg":"","data":%b}' % page if ask.envelope else page


def _members(ask: SourceRequest, start: int, stop: int, total: int) -> Iterator[bytes]:
    if not ask.no_total:
        yield b'"total":%d' % total
    for name, text in {"template": ask.template, "header": ask.header, "footer": ask.footer}.items():
        if text:
            yield b'"%b":%b' % (name.encode(), text.encode())
    yield b'"data":%b' % (_groups_text(ask, start, stop) if ask.grouped else b"[%b]" % _rows_text(ask, start, stop))


def _groups_text(ask: SourceRequest, start: int, stop: int) -> bytes:
    groups: dict[str, list[bytes]] = {}
    for n in range(start, stop):
        groups.setdefault(str(rows.row(ask.seed, n).get(ask.grouped)), []).append(_row_text(ask, n))
    texts = (b"%b:[%b]" % (json.dumps(name).encode(), b",".join(group)) for name, group in groups.items())
    return b"{%b}" % b",".join(texts)


def _rows_text(ask: SourceRequest, start: int, stop: int) -> bytes:
    if not ask.gaps and not ask.pad and (ask.late_from, ask.twice_from, ask.nan_at) == (None, None, None):
        return rows.rows_json(ask.seed, start, stop)
    shown = [n for n in range(start, stop) if not (ask.gaps and is_gap(n, ask.rows))]
    return b",".join(_row_text(ask, n) for n in shown)


def _row_text(ask: SourceRequest, n: int) -> bytes:
    text = rows.rows_json(ask.seed, n, n + 1)
    if ask.pad:
        text = b'%b,"pad":"%b"}' % (text[:-1], (b"%d-" % n * (1 + ask.pad // 2))[: ask.pad])
    if ask.late_from is not None and n >= ask.late_from:
        text = b'%b,"late":%d}' % (text[:-1], n)
    if ask.twice_from is not None and n >= ask.twice_from:
        text = b'%b,"city":"city %d"}' % (text[:-1], n)
    return re.sub(rb'"amount":[^,]+', b'"amount":NaN', text) if n == ask.nan_at else text


def is_gap(n: int, total: int) -> bool:
    """Whether a source with gaps leaves row n out."""
    return n >= total // 2 and n % 3 == 0


async def _reset(request: web.Request, body: bytes) -> web.StreamResponse:
    # In the middle of the body: clients repeat the request by themselves if the fault comes before it.
    response = web.StreamResponse(headers={"Content-Length": str(len(body)), "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if request.transport:
        request.transport.abort()
    return response


async def _stats(request: web.Request) -> web.Response:
    tag = request.query.get("tag", "")
    pages = [
        {"page_size": page_size, "page": page, "requests": count}
        for (tagged, page_size, page), count in sorted(request.app[SOURCE].counts.items())
        if tagged == tag
    ]
    return web.json_response({"requests": sum(counted["requests"] for counted in pages), "pages": pages})


@asynccontextmanager
async def _address(port: int) -> AsyncIterator[str]:
    async with running_source(port) as source:
        yield source.base


def main() -> None:
    """Print the address as one JSON line, then serve until a signal comes or the parent is gone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free port")
    asyncio.run(process.serve(_address(parser.parse_args().port)))


if __name__ == "__main__":
    main()
