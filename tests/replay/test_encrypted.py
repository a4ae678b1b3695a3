"""Histories of which a part is encrypted replay: they began before encryption was switched on, or went on after."""

from __future__ import annotations

import base64
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import History
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

import worker
from infra import temporal
from infra.payloads import EncryptingCodec
from tests.replay.test_replay import HISTORIES, find_workflow

KEY = base64.urlsafe_b64encode(os.urandom(32)).decode()
PLAIN_FIELDS = {
    # The engine reads them.
    "search_attributes",
    "upsert_workflow_search_attributes_command_attributes",
    # The SDK's core writes and reads them, below every codec: versions of changed code.
    "marker_recorded_event_attributes",
}

# One history of each workflow: the others differ in what it does, not in what its payloads are.
ONE_OF_EACH = list({path.parent.name: path for path in HISTORIES}.values())


def iterate_payloads(message: Message) -> Iterator[Payload]:
    """All payloads of a message that pass through the codec."""
    if isinstance(message, Payload):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None or field.name in PLAIN_FIELDS:
            continue
        if field.message_type.GetOptions().map_entry:
            values = list(value.values())
        else:
            values = list(value) if field.is_repeated else [value]
        for each in values:
            if isinstance(each, Message):
                yield from iterate_payloads(each)


async def encrypt_some(path: Path, share: float) -> tuple[WorkflowHistory, int]:
    """A recorded history with a share of its payloads encrypted; and how many these are."""
    dice = random.Random(path.name)
    codec = EncryptingCodec([KEY], encrypts=True)
    plain = WorkflowHistory.from_json(path.stem, path.read_text())
    history = History.FromString(History(events=plain.events).SerializeToString())
    hidden = 0
    for payload in iterate_payloads(history):
        if dice.random() < share:
            [encrypted] = await codec.encode([payload])
            payload.CopyFrom(encrypted)
            hidden += 1
    return WorkflowHistory(path.stem, list(history.events)), hidden


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("path", ONE_OF_EACH, ids=lambda path: path.parent.name)
async def test_mixed_histories_replay(path: Path, share: float) -> None:
    """As if encryption had been switched on in the middle, or before the start."""
    history, hidden = await encrypt_some(path, share)
    assert hidden or share < 1
    codec = EncryptingCodec([KEY], encrypts=True)
    replayer = Replayer(workflows=[find_workflow(path)], plugins=[temporal.build_plugin(codec=codec)])
    await replayer.replay_workflow(history)


@pytest.mark.parametrize("holds", ["another key", "no key"])
async def test_a_history_of_a_lost_key_says_so(holds: str, caplog: pytest.LogCaptureFixture) -> None:
    """The workflow task fails with the sentence, and may go on when the key is back."""
    history, hidden = await encrypt_some(ONE_OF_EACH[0], 1.0)
    assert hidden
    other = EncryptingCodec([base64.urlsafe_b64encode(os.urandom(32)).decode()], encrypts=True)
    plugin = temporal.build_plugin(codec=other if holds == "another key" else None)
    with pytest.raises(RuntimeError):
        await Replayer(workflows=worker.list_workflows(), plugins=[plugin]).replay_workflow(history)
    assert "Put that key back at the end of HAULAGE_SECRETS__PAYLOADS" in caplog.text
