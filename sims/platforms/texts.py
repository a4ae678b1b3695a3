"""Orders as JSON text: quick, exact, and the same for the same order and version."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from sims.platforms.clock import MICRO
from sims.platforms.market import Market

FIRST_ID: Final = 2**53 + 1
"""Ids that are equal when they are parsed as floats."""
_VARIANTS: Final = 64
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CITIES: Final = ("深圳", "上海", "Berlin", "São Paulo", "København", "New York")

Stamp = Callable[[int], bytes]


def stamp(sep: str, zone_minutes: int, tail: str, *, milliseconds: bool = False) -> Stamp:
    """What writes microseconds since 1970 as a time; minutes are written once and kept."""

    @lru_cache(maxsize=100_000)
    def minute(number: int) -> bytes:
        local = _EPOCH + timedelta(minutes=number + zone_minutes)
        return local.strftime(f"%Y-%m-%d{sep}%H:%M:").encode()

    end = tail.encode()

    def write(us: int) -> bytes:
        rest = us % (60 * MICRO)
        if milliseconds:
            return b"%b%02d.%03d%b" % (minute(us // (60 * MICRO)), rest // MICRO, rest % MICRO // 1_000, end)
        return b"%b%02d%b" % (minute(us // (60 * MICRO)), rest // MICRO, end)

    return write


def order_id(number: int) -> int:
    """The id of an order."""
    return FIRST_ID + number


def number_of(order: int) -> int:
    """The order of an id."""
    return order - FIRST_ID


def amazon_id(number: int) -> str:
    """The same in Amazon's form."""
    return f"111-{number // 10**7 + 1_000_000:07}-{number % 10**7:07}"


def number_of_amazon(name: str) -> int:
    """The order of an id in Amazon's form; -1 where it has none."""
    found = re.fullmatch(r"111-(\d{7})-(\d{7})", name)
    return (int(found[1]) - 1_000_000) * 10**7 + int(found[2]) if found else -1


def odd_id(number: int) -> str:
    """The same with what a path must not hold as it is."""
    return f"№ {number}/A%2F?b=1&c#d+{number % 7}"


def items(number: int) -> list[str]:
    """What was bought with an order, in amounts that no float holds exactly; with some nothing."""
    return [f'{{"sku":"SKU-{number}-{place}","price":{number % 97}.{place}0}}' for place in range(number % 6)]


@lru_cache(maxsize=_VARIANTS)
def tail(variant: int) -> bytes:
    """What is the same for many orders: customer, items, and amounts that no float holds exactly."""
    draw = blake2b(b"%d" % variant, digest_size=8).digest()
    cents = int.from_bytes(draw[:4]) % 10**7
    price, city, is_vip = (
        f"{cents // 100}.{cents % 100:02}",
        _CITIES[variant % len(_CITIES)],
        str(variant % 3 == 0).lower(),
    )
    return (
        f'"currency":"CNY","total":{price},"tax":0.10,'
        f'"customer":{{"name":"Customer {variant}","city":"{city}","vip":{is_vip}}},'
        f'"items":[{{"sku":"SKU-{draw.hex()[:8]}","quantity":{draw[5] % 9 + 1},"price":{price}}}]'
    ).encode()


def status(version: int) -> bytes:
    """An order's state goes on with its versions."""
    return (b"paid", b"packed", b"shipped", b"delivered")[min(version, 4) - 1]


Row = Callable[[Market, int], bytes]


def row(form: str, written: Stamp) -> Row:
    """What writes one order of a dialect: `form` has gaps for id, created, modified, status, version and the rest."""
    template = form.encode()

    def write(market: Market, number: int) -> bytes:
        version = market.shown.version[number]
        return template % {
            b"id": FIRST_ID + number,
            b"created": written(market.created[number]),
            b"modified": written(market.shown.modified[number]),
            b"status": status(version),
            b"version": version,
            b"rest": tail((number * 31 + version) % _VARIANTS),
        }

    return write
