"""Each field of an action of orders is honoured: two of its values lead to outcomes that differ.

That each field has a case is shown by test_order_options.py.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import product
from typing import Any

import pytest
from sqlmodel import col, update

from domain.orders import windows
from infra.settings import Settings
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.scenario import PlatformScenario
from stores.tables.orders import OrderSlice
from tests.support.orders import CREDENTIALS, running_orders
from tests.support.waiting import eventually
from tests.worlds.orders.cases import (
    BACKFILL,
    CHOICE,
    ERRORS,
    QUICK,
    REASON,
    SIGNED,
    SPAN_SECONDS,
    TRIED,
    Case,
    failing,
)
from tests.worlds.orders.shop import Shop


@pytest.fixture
async def shop(settings: Settings) -> AsyncIterator[Shop]:
    """API, worker and platforms."""
    async with running_orders(settings) as orders:
        yield Shop(orders)


@pytest.mark.long
@pytest.mark.stack
async def test_every_field_of_steering_makes_a_difference(shop: Shop) -> None:
    """Which slices are read again, split or skipped, by whom, and the reason that is kept."""
    number = await shop.begin(failing(ERRORS), {}, QUICK | {"interval": 600})
    await shop.fetch(number)
    rows = await shop.orders.slices(number)
    names = [str(windows.TimeWindow(start=row.start_at, end=row.end_at)) for row in rows]
    base = f"/v1/platforms/{number}"

    def with_names(sent: dict[str, Any]) -> dict[str, Any]:
        named = {"first": names[0], "second": names[1]}
        return {key: [named[each] for each in value] if key == "slices" else value for key, value in sent.items()}

    unheeded = []
    for name, case in CHOICE.items():
        chosen = []
        await _fail_last_by_time(shop, rows[-1])
        for value, beside in zip((case.one, case.other), case.requests, strict=True):
            body = with_names({**beside, name: value}) | {"reason": "given up"}
            reply = await shop.orders.ask("POST", f"{base}/slices:skip", json=body)
            assert reply.status == 200, (name, reply.body)
            chosen.append(reply.body["done"])
            await _fail_again(shop, number)
        unheeded += [name] if chosen[0] == chosen[1] else []
        again = [
            (await shop.orders.ask("POST", f"{base}/slices:redo", json=with_names({**beside, name: value}))).body[
                "done"
            ]
            for value, beside in zip((case.one, case.other), case.requests, strict=True)
        ]
        assert again == chosen, name
        if any(names[-1] in each for each in again):
            # Its reading would end with the platform's own code after that was changed, and it would be chosen by that.
            await shop.orders.engine.get_workflow_handle(f"order-slice:{number}:{names[-1]}:redo").result()
    reasons, names_of_operators = [], []
    for path, value, at in (
        (":skip", REASON.one, 0),
        (":skip", REASON.other, 1),
        ("", REASON.one, 2),
        ("", REASON.other, 3),
    ):
        who = SIGNED["who"].one if value == REASON.one else SIGNED["who"].other
        body = {"reason": value} | ({"slices": [names[at]]} if path else {"who": who})
        await shop.orders.ask("POST", f"{base}/slices{path or f'/{names[at]}/skip'}", json=body)
        names_of_operators.append((await _read_newest_audit(shop))[0])
        reasons.append((await shop.orders.ask("GET", f"{base}/slices/{names[at]}")).body["reason"])
    for verb in ("skip", "split"):
        for name, case in SIGNED.items():
            pair = []
            for value in (case.one, case.other):
                # From the second time on it is left as it is, which is an action, too.
                body = {"slices": [names[4]], "reason": "given up", name: value}
                assert (await shop.orders.ask("POST", f"{base}/slices:{verb}", json=body)).status == 200
                pair.append(await _read_newest_audit(shop))
            unheeded += [f"{verb} {name}"] if pair[0] == pair[1] else []
        await _fail_again(shop, number)
    unheeded += await _list_unheeded_fields_of_one_slice(shop, f"{base}/slices/{names[4]}")
    assert unheeded == []
    assert reasons == [REASON.one, REASON.other] * 2
    assert names_of_operators == [None, None, SIGNED["who"].one, SIGNED["who"].other]


async def _list_unheeded_fields_of_one_slice(shop: Shop, path: str) -> list[str]:
    """Redo and split it by each name and for each reason; the second split is refused, and in the audit log, too."""
    unheeded = []
    for verb, name in product(("redo", "split"), ("who", "reason")):
        pair = []
        for value in _both(SIGNED[name]):
            await shop.orders.ask("POST", f"{path}/{verb}", json={name: value})
            pair.append(await _read_newest_audit(shop))
        unheeded += [f"{verb} {name}"] if pair[0] == pair[1] else []
    return unheeded


@pytest.mark.long
@pytest.mark.stack
async def test_every_field_of_pausing_and_removing_makes_a_difference(shop: Shop) -> None:
    """What is shown of a pause, and what the audit log has of it and of a removal."""
    notes, pauses, removals = [], [], []
    for who, reason in zip(_both(SIGNED["who"]), _both(SIGNED["reason"]), strict=True):
        path = f"/v1/platforms/{await shop.begin(PlatformScenario(orders=0), {}, QUICK)}"
        notes.append((await shop.orders.ask("POST", f"{path}/pause", json={"who": who, "reason": reason})).body["note"])
        pauses.append(await _read_newest_audit(shop))
        await shop.orders.ask("POST", f"{path}/remove", json={"who": who, "reason": reason})
        removals.append(await _read_newest_audit(shop))
    signed = [*zip(_both(SIGNED["who"]), _both(SIGNED["reason"]), strict=True)]
    assert notes == [f"{who}: {reason}" for who, reason in signed]
    assert pauses == removals == signed


def _both(case: Case) -> tuple[Any, Any]:
    return case.one, case.other


async def _read_newest_audit(shop: Shop) -> tuple[str | None, str | None]:
    [entry] = (await shop.orders.ask("GET", "/v1/audit", params={"limit": "1"})).body["items"]
    return entry["who"], entry["reason"]


@pytest.mark.long
@pytest.mark.stack
async def test_every_field_of_a_trial_makes_a_difference(shop: Shop) -> None:
    """Which platform is asked, how, as whom and for which time; the same twice is answered the same."""
    orders = shop.orders
    folder = orders.api_client.settings.orders.credentials_folder
    for number, count in (("one", 7), ("other", 9)):
        orders.play(PlatformScenario(orders=count, span_seconds=SPAN_SECONDS), number)
    (folder / "withdrawn.json").write_text(json.dumps({"token": "no more"}))
    outcomes = {}
    for name, case in {"": Case(None, None), **TRIED}.items():
        number = f"tried-{name}"
        orders.play(case.scenario, number)
        declared = {
            "kind": "plain",
            "shop": "shop",
            "base_url": orders.platforms.url(number),
            "capability": PLAIN.model_dump(mode="json"),
            "credentials": CREDENTIALS,
            **case.beside,
        }
        pair = []
        for value in (case.one, case.other):
            sent = declared | {name: orders.platforms.url(value) if name == "base_url" else value} if name else declared
            reply = await orders.ask("POST", "/v1/platforms:try", json=sent)
            assert reply.status == 200, (name, value, reply.body)
            pair.append({each: reply.body[each] for each in ("total", "rows", "items", "problems")})
        outcomes[name] = pair
    one, other = outcomes.pop("")
    assert one == other
    assert [name for name, (one, other) in outcomes.items() if one == other] == []


async def _fail_last_by_time(shop: Shop, row: OrderSlice) -> None:
    """Give a slice another code than all others have."""
    fault = {**(row.fault or {}), "code": "slice_timeout"}
    async with shop.orders.services.database.session() as session:
        await session.exec(update(OrderSlice).where(col(OrderSlice.slice_id) == row.slice_id).values(fault=fault))


async def _fail_again(shop: Shop, number: str) -> None:
    """Put what was skipped back into the failed set, so that the next one can choose among the same."""
    values = {"skipped_at": None, "reason": None}
    async with shop.orders.services.database.session() as session:
        await session.exec(update(OrderSlice).where(col(OrderSlice.platform) == number).values(**values))


@pytest.mark.long
@pytest.mark.stack
async def test_every_field_of_what_is_begun_makes_a_difference(shop: Shop) -> None:
    """Which time is read again and for whom, and which day is compared."""
    number = await shop.begin(
        PlatformScenario(orders=60, span_seconds=2 * 86_400),
        {},
        QUICK | {"interval": 3_600, "max_rows_per_slice": 10_000},
    )
    await eventually(lambda: _is_fetched(shop, number))
    base = f"/v1/platforms/{number}"
    unheeded = []
    for name, case in BACKFILL.items():
        pair = []
        for value in (case.one, case.other):
            body = {**case.beside, name: value}
            begun = (await shop.orders.ask("POST", f"{base}/backfill", json=body)).body
            await shop.orders.engine.get_workflow_handle(begun["workflow_id"]).result()
            record = (await shop.orders.ask("GET", f"{base}/backfills/{begun['backfill_id']}")).body
            pair.append([record[each] for each in ("requested_by", "window", "read")])
        unheeded += [name] if pair[0] == pair[1] else []
    shop.orders.platforms.by_number[number].market.clock.advance(86_400)
    await shop.fetch(number)
    told = []
    for day in ("2026-01-01", "2026-01-02"):
        begun = (await shop.orders.ask("POST", f"{base}/reports", json={"day": day})).body
        await shop.orders.engine.get_workflow_handle(begun["workflow_id"]).result()
        report = (await shop.orders.ask("GET", f"{base}/reports/{day}")).body
        told.append((report["day"], report["listed"], report["window"]["start"]))
    assert unheeded == []
    assert told[0] != told[1]


async def _is_fetched(shop: Shop, number: str) -> bool:
    await shop.fetch(number)
    return await shop.orders.is_complete(number)
