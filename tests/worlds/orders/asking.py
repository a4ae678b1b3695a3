"""Requests as a world's platform reads them: what is asked for, and whose token it is signed with."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Self
from urllib.parse import urlencode

from domain.orders.declarations import TimeNotation
from sims.platforms.clock import MICRO
from tests.worlds.orders import record
from tests.worlds.orders.paging import Place, unseal
from tests.worlds.orders.rows import Goods, as_us
from tests.worlds.orders.world import World

SIGNED_WITH = frozenset({"app_key", "session", "at", "sign"})
APART = SIGNED_WITH | {record.API}


@dataclass(frozen=True)
class Question:
    """One request, without what it is signed with."""

    path: str
    query: Mapping[str, str]

    @classmethod
    def read(cls, path: str, query: Mapping[str, str]) -> Self:
        """Take out of a request what it is signed with and which version it asks."""
        return cls(path, {name: value for name, value in query.items() if name not in APART})

    @property
    def name(self) -> str:
        """Return what distinguishes it from others."""
        return f"{self.path}?{urlencode(sorted(self.query.items()))}"


def read_token(world: World, secret: str, query: Mapping[str, str], headers: Mapping[str, str]) -> str:
    """Return the token of a request that is signed rightly, else nothing."""
    shown = headers.get("Authorization", "")
    match world.options["signing"]:
        case "token" | "renewed":
            return shown.removeprefix("Bearer ")
        case "basic":
            return b64decode(shown.removeprefix("Basic ")).decode().partition(":")[2]
        case _:
            unsigned = {name: value for name, value in query.items() if name != "sign"}
            text = secret + "".join(f"{name}{unsigned[name]}" for name in sorted(unsigned)) + secret
            sign = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest().upper()
            return query.get("session", "") if query.get("sign") == sign else ""


def strip_version(world: World, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
    """Return the path of a request without the version that it names; None where that is not the one that is served."""
    match world.options["api"]:
        case "in_path":
            served = f"/{record.VERSION}"
            return path.removeprefix(served) if path.startswith(f"{served}/") else None
        case "in_parameter":
            return path if query.get(record.API) == record.VERSION else None
        case "in_header":
            return path if headers.get(record.API_HEADER) == record.VERSION else None
        case _:
            return path


def read_place(goods: Goods, query: Mapping[str, str]) -> Place:
    """Read which page of which window is asked for.

    Raises:
        ValueError: The platform refuses it.
    """
    world, page = goods.world, query.get("page")
    if page is not None and not world.is_so("paging", "number"):
        place = unseal(page)
        if "from" in query and _read_window(goods, query) != (place.first_us, place.last_us):
            raise ValueError("the cursor is that of another query")
        return place
    first_us, last_us = _read_window(goods, query)
    longest = world.number("interval") + world.number("overlap") + 1
    if world.is_so("window_max", "narrow") and last_us - first_us > longest * MICRO:
        raise ValueError("the window is too long")
    number = int(page) - world.number("first_page") if page is not None else 0
    if number < 0:
        raise ValueError(f"there is no page {page}")
    return Place(first_us, last_us, min(int(query.get("size", "10")), world.page_size), number)


def is_taken_for_right(goods: Goods, question: Question, body: bytes) -> bool:
    """Return whether nothing shows that a page is that of another window, where one page leads to the next.

    All of its orders lie behind the page before, and in the window that is asked for; or that is one of creation, which
    no order shows.
    """
    world, rows = goods.world, json.loads(body)["orders"]
    if world.is_so("paging", "number") or not rows:
        return False
    if world.is_so("field", "created"):
        return world.tells_total
    place, read = read_place(goods, question.query), record.row_moments(world).build_time_parser()
    keys = [goods.sort_key(goods.number_of(str(row["id"]))) for row in rows if row["id"] is not None]
    if place.key is not None and any(key <= place.key for key in keys):
        return False
    dated = [as_us(read(row["modified"], datetime.now(UTC))) for row in rows if row["modified"] is not None]
    return all(place.first_us - MICRO <= at_us <= place.last_us + MICRO for at_us in dated)


def _read_window(goods: Goods, query: Mapping[str, str]) -> tuple[int, int]:
    """Return the first and the last moment of a window; both belong to it."""
    world, grain = goods.world, goods.market.grain_us
    first_us, last_us = (_read_moment(world, query[name]) for name in ("from", "to"))
    return first_us + grain * world.is_so("ends", "none"), last_us - grain * (not world.is_so("ends", "both"))


def _read_moment(world: World, text: str) -> int:
    moments = record.query_moments(world)
    if moments.form is TimeNotation.EPOCH:
        return int(text) * MICRO
    when = datetime.fromisoformat(text)
    zone = timezone(timedelta(minutes=moments.zone_minutes))
    return as_us(when if when.tzinfo else when.replace(tzinfo=zone))
