"""The store of orders: whoever writes a copy, and in whatever order, the newest stays."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import col, select

from activities.orders import storing
from activities.orders.storing import Copy
from domain.orders.capability import Order
from infra.database import Database
from infra.platforms import Account
from infra.tables.orders import Order as Row
from infra.tables.orders import OrderCopy

pytestmark = pytest.mark.stack

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)


def copy(account: Account, modified: int, version: int, asked: int, note: str = "") -> Copy:
    """A copy of one order, as it was at some second and told at another."""
    moment = BEGIN + timedelta(seconds=modified)
    raw = f'{{"id":1,"note":"{modified} {version} {note}"}}'.encode()
    order = Order(account.platform, account.shop, "1", moment, version, raw)
    return Copy(order, BEGIN + timedelta(seconds=asked))


async def stored(database: Database, account: Account) -> Row:
    """The order as it is stored."""
    async with database.session() as session:
        return (await session.exec(select(Row).where(Row.platform == account.platform))).one()


async def write(database: Database, account: Account, copies: Sequence[Copy]) -> None:
    """Commit after commit, each with a revision of its own."""
    for revision, each in enumerate(copies, 1):
        async with database.session() as session:
            await storing.merge(session, account, revision, [each])


async def test_the_newest_copy_stays_in_whatever_order_copies_come(database: Database) -> None:
    """O5, O6: by modification, then version, then by when it was asked for; a copy that comes again changes nothing."""
    chance = random.Random(7)
    kinds = [(5, 1, 50, "a"), (5, 2, 40, "b"), (9, 1, 30, "c"), (9, 1, 60, "d"), (2, 9, 90, "e")]
    expected = '{"id":1,"note":"9 1 d"}'
    for number, order in enumerate(itertools.permutations(kinds)):
        account = Account(f"p{number}", "shop", "")
        copies = [copy(account, *each) for each in order]

        await write(database, account, [*copies, chance.choice(copies)])

        assert (await stored(database, account)).raw == expected, order


async def test_what_is_replaced_can_still_be_seen_at_a_mark(database: Database) -> None:
    """Each revision has the copy that was the newest then, and nothing ever went back."""
    account = Account("p", "shop", "")
    await write(database, account, [copy(account, second, 1, second) for second in (3, 1, 5, 4, 9)])

    async with database.session() as session:
        copies = (await session.exec(select(OrderCopy).order_by(col(OrderCopy.revision)))).all()
    seen = [(each.revision, each.until_revision, (each.modified_at - BEGIN).seconds) for each in copies]

    assert seen == [(1, 3, 3), (3, 5, 5)]
    assert (await stored(database, account)).revision == 5


async def test_the_same_copy_with_other_white_space_is_no_regression(database: Database) -> None:
    """Of the same second and version, what was asked for later is taken; what was asked for earlier is not."""
    account = Account("p", "shop", "")
    await write(database, account, [copy(account, 1, 1, 20, "later"), copy(account, 1, 1, 10, "earlier")])

    assert "later" in (await stored(database, account)).raw
