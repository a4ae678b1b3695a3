"""What all stand-ins have: a page at `/` that shows what they hold, and `PUT /_sim/lie`, after which they lie."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

ROWS_SHOWN = 200
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1c2733}"
    "table{border-collapse:collapse;width:100%;margin:.3rem 0 1.5rem}"
    "th,td{text-align:left;padding:.25rem .8rem .25rem 0;border-bottom:1px solid #d8dee6;overflow-wrap:anywhere}"
    "code{background:#eef1f5;padding:.1rem .3rem}"
)


@dataclass(frozen=True)
class PageTable:
    """Rows under a caption, each with the same names; `note` stands between the two."""

    caption: str
    rows: Sequence[Mapping[str, Any]]
    note: str = ""


def add_page(app: web.Application, title: str, text: str, describe: Callable[[], Sequence[PageTable]]) -> None:
    """Serve the page of a stand-in at `/`.

    Args:
        text: One sentence: what it stands in for.
        describe: Returns the tables, anew for each request.
    """

    async def show(_: web.Request) -> web.Response:
        return web.Response(text=_render(title, text, describe()), content_type="text/html")

    app.router.add_get("/", show)


def answer_line(body: Any, status: int = 200) -> web.Response:
    """Answer JSON with a line end, so that it reads well in a terminal."""
    return web.json_response(text=json.dumps(body) + "\n", status=status)


_Scenario = TypeVar("_Scenario", bound=BaseModel)


async def read_scenario(request: web.Request, model: type[_Scenario]) -> _Scenario:
    """Read a scenario from the body of a request, which may be empty; the answer to a wrong one says what is wrong."""
    try:
        return model.model_validate_json(await request.read() or b"{}")
    except ValidationError as error:
        wrong = f"{describe_errors(error)}. Fields: {', '.join(model.model_fields)}."
        raise web.HTTPBadRequest(text=json.dumps({"error": wrong}) + "\n", content_type="application/json") from None


def describe_errors(error: ValidationError) -> str:
    """Return each field that is wrong, with the reason."""
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in error.errors())


def add_lie(app: web.Application, set_lying: Callable[[bool], object]) -> None:
    """Let `PUT /_sim/lie` make a stand-in tell what is not true, and `DELETE /_sim/lie` end that."""

    async def begin(_: web.Request) -> web.Response:
        set_lying(True)
        return answer_line({})

    async def end(_: web.Request) -> web.Response:
        set_lying(False)
        return answer_line({})

    app.router.add_put("/_sim/lie", begin)
    app.router.add_delete("/_sim/lie", end)


def _render(title: str, text: str, tables: Sequence[PageTable]) -> str:
    body = "".join(_render_table(table) for table in tables)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="2">'
        f"<title>{escape(title)}: stand-in</title><style>{STYLE}</style>"
        f"<h1>{escape(title)}</h1><p>{escape(text)}</p>{body}</html>"
    )


def _render_table(table: PageTable) -> str:
    note = f"<p>{escape(table.note)}</p>" if table.note else ""
    shown = table.rows[:ROWS_SHOWN]
    if not shown:
        return f"<h2>{escape(table.caption)}</h2>{note}<p>Nothing yet.</p>"
    head = "".join(f"<th>{escape(str(name))}</th>" for name in shown[0])
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in row.values()) + "</tr>" for row in shown
    )
    more = f"<p>and {len(table.rows) - len(shown):,} more</p>" if len(table.rows) > len(shown) else ""
    return f"<h2>{escape(table.caption)}</h2>{note}<table><tr>{head}</tr>{rows}</table>{more}"
