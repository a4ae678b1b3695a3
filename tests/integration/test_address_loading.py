"""What a step of a cycle loads of its messages: no more at a time than a worker can hold."""

from __future__ import annotations

import pytest

from domain.addresses.messages import PublishedMessage, Topic
from domain.addresses.operations import Module
from stores.addresses.inbox import DeliveredMessage
from tests.support.address_said import create
from tests.support.address_world import CycleHarness

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]


async def test_large_messages_of_a_group_are_sent_in_parts(
    world: CycleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many are in memory at a time as fit, at least one; small ones go together."""
    monkeypatch.setattr("stores.addresses.delivery.PART_MAX_BYTES", 300, raising=False)
    large, text = {1: 100, 2: 100, 3: 600, 4: 100, 5: 10, 6: 10}, "x"
    said = [
        (Topic.CREATE_UPDATE, f"c{n}", {"uprn": n, "address_id": n, "record": {"a": text * size}})
        for n, size in large.items()
    ]
    await world.publish(said)
    await world.cycle()

    sent = [tuple(int(id_) for id_ in op_ids) for module, op_ids in world.modules.calls if module is Module.ED]
    first = min(await world.rows())
    assert [tuple(id_ - first + 1 for id_ in ids) for ids in sent] == [(1, 2), (3,), (4, 5, 6)]
    assert {row["proc_flag"] for row in (await world.rows()).values()} == {"Y"}
    assert {uprn: len(record["a"]) for uprn, (_, record) in world.modules.books[Module.OD].live.items()} == large


async def test_what_else_a_swap_says_is_not_loaded(world: CycleHarness) -> None:
    """Of its text only whether the address is deleted afterwards, as its last field of that name says."""
    await world.publish([create("c1", 1), create("c2", 2), create("c3", 3)])
    await world.cycle()
    texts = (
        b'{"uprn_1": 1, "uprn_2": 2, "note": "' + b"x" * 500 + b'"}',
        b'{"uprn_1": 1, "uprn_2": 3, "delete_after": false, "delete_after": true}',
    )
    await world._inbox.store_messages_or_quarantine_them(
        [DeliveredMessage(Topic.SWAP, PublishedMessage(message_id=f"s{n}", data=text)) for n, text in enumerate(texts)]
    )
    await world.cycle()

    swaps = [effect.operation for effect in world.modules.effects if effect.operation.uprn_2]
    assert {each.delete_after for each in swaps if each.uprn_2 == 2} == {False}
    assert {each.delete_after for each in swaps if each.uprn_2 == 3} == {True}
