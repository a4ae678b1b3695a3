"""The client library of addresses against an installation."""

from __future__ import annotations

import pytest

from domain.addresses.messages import Topic as ServerTopic
from haulage.addresses import Addresses, MessageState, Module, Topic, WaitKind
from sims.oss.scenario import OssAction, OssRule, OssScenario
from tests.support.addresses import Addresses as Installation

pytestmark = pytest.mark.stack


async def test_an_operator_finds_and_retries_what_a_module_failed(addresses: Installation) -> None:
    """A message is given up while OD fails, is found by that, and is done after a retry."""
    addresses.modules.set(OssScenario(rules=(OssRule(action=OssAction.FAIL, modules=frozenset({"od"})),)))
    id_ = await addresses.publish(ServerTopic.CREATE_UPDATE, uprn=7, address_id=70, record={"street": "Main"})
    key = addresses.api_client.settings.api.admin_key.get_secret_value()
    async with Addresses(addresses.api_client.address, key, who="ann") as client:
        await client.resume("the test begins")
        last = [figures async for figures in client.watch()][-1]
        [found] = [each async for each in client.list_messages(state=MessageState.GIVEN_UP, module=Module.OD)]
        addresses.modules.set(OssScenario())
        retry = await client.retry_messages("OD is back", kind=WaitKind.FAILED)
        ended = [figures async for figures in client.watch()][-1]
        message = await client.get(id_)
        comparison = await client.compare()
        await client.pause("the test ends")

    assert (last.unfinished, last.needing_operator) == (0, 1)
    assert (found.message_id, found.topic, found.waits and found.waits.module) == (id_, Topic.CREATE_UPDATE, Module.OD)
    assert (retry.retried, ended.needing_operator) == (1, 0)
    assert (message.state, [action.action for action in message.actions]) == (MessageState.DONE, ["retry"])
    assert comparison.found is not None
    assert (comparison.found.compared, comparison.found.different) == (1, 0)
