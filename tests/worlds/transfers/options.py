"""Options of requests for transfers."""

from __future__ import annotations

from functools import cache

from tests.worlds import pairwise
from tests.worlds.pairwise import Options, Row

OPTIONS: Options = {
    "request": ("batch", "single"),
    "path": ("whole", "folder", "relative", "doubled"),
    "signature": ("lower", "upper"),
    "user": ("root", "app"),
    "folder": ("unix", "windows", "slash"),
    "file_name": ("app.conf", "配置 1.conf"),
    "biz_id": ("2", "0", "4294967295"),
    "container": ("plain", "runtime"),
    "project": ("first", "second"),
}


def plain_row() -> Row:
    """Return the plainest value of every option."""
    return pairwise.plain_row(OPTIONS)


@cache
def pairwise_rows() -> tuple[Row, ...]:
    """Return rows of options that together hold every pair of values of two options."""
    return pairwise.pairwise_rows(OPTIONS)
