"""The sample source's rows: a pure function of (seed, n), and the same rows as JSON text at gigabytes per second."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from functools import lru_cache
from json import dumps
from typing import Any
from zlib import crc32

# Row n is row `n % BLOCK_ROWS` of block `n // BLOCK_ROWS`. A block is rendered beforehand, in a few variants,
# with gaps where the block's number and day belong; to serve a page is to copy bytes and to fill those gaps.
BLOCK_ROWS = 1_000
VARIANTS = 8
FIRST_NUMBER = 1_000  # keeps ids free of leading zeros
FIRST_DAY = date(2020, 1, 1)
DAYS = 2_000
_NUMBER_GAP, _DAY_GAP = "\x01", "\x02"

_SURNAMES = "王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗"
_GIVEN_NAMES = "伟芳娜敏静强磊军洋勇艳杰娟涛明超秀霞平刚"
_PRODUCTS = (
    "Steel bolt M8",
    "Copper wire 2.5mm",
    "LED panel 600x600",
    "Ball bearing 6204",
    "PVC pipe DN50",
    "Oil filter HU718",
)
_CITIES = ("深圳", "上海", "北京", "Berlin", "São Paulo", "København", "New York", "東京")
_NOTES = ("Call first, then deliver", 'Marked "fragile"', "Ring twice\nGround floor", "加急，周五前送达", "Back door")


@dataclass(frozen=True, slots=True)
class _Cells:
    """What is the same for a row of every block of one variant."""

    order_prefix: str
    customer: str
    product: str
    amount: Decimal
    quantity: int
    paid: bool
    clock: str
    note: str | None
    city: str


@dataclass(frozen=True, slots=True)
class _Block:
    """The rows of one variant as JSON text with gaps; row k lies in `text[starts[k]:starts[k + 1] - 1]`."""

    text: bytes
    starts: list[int]


def row(seed: int, n: int) -> dict[str, Any]:
    """Row n, as a JSON reader that keeps decimals exact would see it."""
    block, k = divmod(n, BLOCK_ROWS)
    number, day = _gaps(block)
    cells = _cells(seed, _variant(seed, block))[k]
    return {
        "id": int(f"{number}{k:03}"),
        "order_no": f"{cells.order_prefix}{number}{k:03}",
        "customer": cells.customer,
        "product": cells.product,
        "amount": cells.amount,
        "quantity": cells.quantity,
        "paid": cells.paid,
        "ordered_at": f"{day}T{cells.clock}Z",
        "note": cells.note,
        "city": cells.city,
    }


def rows_json(seed: int, start: int, stop: int) -> bytes:
    """Rows start to stop - 1 as JSON objects with commas between them."""
    pieces = []
    while start < stop:
        block, k = divmod(start, BLOCK_ROWS)
        end = min(BLOCK_ROWS, k + stop - start)
        number, day = _gaps(block)
        rendered = _block(seed, _variant(seed, block))
        piece = rendered.text[rendered.starts[k] : rendered.starts[end] - 1]
        pieces.append(piece.replace(_NUMBER_GAP.encode(), number.encode()).replace(_DAY_GAP.encode(), day.encode()))
        start += end - k
    return b",".join(pieces)


def _variant(seed: int, block: int) -> int:
    return crc32(b"%d/%d" % (seed, block)) % VARIANTS


def _gaps(block: int) -> tuple[str, str]:
    return str(FIRST_NUMBER + block), (FIRST_DAY + timedelta(days=block % DAYS)).isoformat()


@lru_cache(maxsize=4 * VARIANTS)
def _cells(seed: int, variant: int) -> list[_Cells]:
    chance = random.Random(f"{seed}/{variant}")
    return [
        _Cells(
            order_prefix=f"00{chance.randrange(10**10):010}",
            customer=chance.choice(_SURNAMES) + "".join(chance.choices(_GIVEN_NAMES, k=chance.randint(1, 2))),
            product=chance.choice(_PRODUCTS),
            amount=Decimal(chance.randrange(-10_000, 1_000_000)).scaleb(-2),
            quantity=chance.randrange(1, 500),
            paid=chance.random() < 0.8,
            clock=time(chance.randrange(24), chance.randrange(60), chance.randrange(60)).isoformat(),
            note=chance.choice(_NOTES) if chance.random() < 0.4 else None,
            city=chance.choice(_CITIES),
        )
        for _ in range(BLOCK_ROWS)
    ]


@lru_cache(maxsize=4 * VARIANTS)
def _block(seed: int, variant: int) -> _Block:
    texts = [_render(k, cells) for k, cells in enumerate(_cells(seed, variant))]
    starts = [0]
    for text in texts:
        starts.append(starts[-1] + len(text))
    return _Block(b"".join(texts), starts)


def _render(k: int, cells: _Cells) -> bytes:
    fields = (
        f'"id":{_NUMBER_GAP}{k:03}',
        f'"order_no":"{cells.order_prefix}{_NUMBER_GAP}{k:03}"',
        f'"customer":{dumps(cells.customer, ensure_ascii=False)}',
        f'"product":{dumps(cells.product)}',
        f'"amount":{cells.amount}',
        f'"quantity":{cells.quantity}',
        f'"paid":{dumps(cells.paid)}',
        f'"ordered_at":"{_DAY_GAP}T{cells.clock}Z"',
        f'"note":{dumps(cells.note, ensure_ascii=False)}',
        f'"city":{dumps(cells.city, ensure_ascii=False)}',
    )
    return f"{{{','.join(fields)}}},".encode()
