"""Sealing with several keys: what an old one made is sealed anew under the first, and nothing else is touched."""

from __future__ import annotations

import base64
import importlib
import json
import os
import pkgutil
from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from pydantic import SecretStr
from sqlalchemy import Column, MetaData, Table, Text
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from activities.webhooks import WebhookActivities
from api import webhooks
from api.downloads import actions
from api.downloads.context import DownloadPath
from clients.sources import RetryLater, open_source_address
from domain.downloads.models import DownloadSpec, DownloadState, TableSource
from domain.downloads.retries import PageAttempts, replace_request_attempts
from domain.faults import Conflict
from domain.secrets import SealedText
from domain.webhooks import (
    DeliveryState,
    WebhookAttemptInput,
    WebhookDeliveryInput,
    WebhookEvent,
    WebhookEventSubject,
)
from infra.database import TableRow
from infra.secrets import SealUnreadableError, SecretSealer
from infra.settings import SecretSettings, WebhookSettings
from stores import sealed, tables
from stores.tables import SEALED
from stores.tables.shared import Delivery

OLD, NEW, OTHER = (base64.urlsafe_b64encode(os.urandom(32)).decode() for _ in range(3))
MESSAGE = f"msg_{1:032x}"
DOWNLOAD = f"dl_{1:024x}"


def make_sealer(*keys: str) -> SecretSealer:
    """A sealer with these keys."""
    return SecretSealer(SecretSettings(seal=[SecretStr(key) for key in keys]))


def test_only_what_an_old_key_made_is_sealed_anew() -> None:
    """Then the first key alone opens it."""
    both = make_sealer(NEW, OLD)
    resealed = both.reseal(make_sealer(OLD).seal("a secret"))

    assert resealed
    assert make_sealer(NEW).open(resealed) == "a secret"
    assert both.reseal(resealed) is None
    with pytest.raises(SealUnreadableError):
        both.reseal(make_sealer(OTHER).seal("a secret"))


def test_every_sealed_value_of_a_request_is_sealed_anew() -> None:
    """Those of its tables, too; a field that only looks like a sealed value is the caller's, and stays."""
    old, both = make_sealer(OLD), make_sealer(NEW, OLD)
    source = TableSource(source_url=old.seal("url"), source_headers=old.seal("headers"))
    spec = DownloadSpec(
        task_id="dl", project_id="prj", file_name=old.seal("x").token, callback=old.seal("callback"), tables=[source]
    )
    text = sealed.reseal_values_in_download_request(both, json.dumps(spec.model_dump(mode="json")))

    assert text
    assert sealed.reseal_values_in_download_request(both, text) is None
    after = DownloadSpec.model_validate_json(text)
    values = (after.callback, after.tables[0].source_url, after.tables[0].source_headers)
    assert [make_sealer(NEW).open(value) for value in values if value] == ["callback", "url", "headers"]
    changed = {"callback": spec.callback, "tables": spec.tables}
    assert after.model_copy(update=changed) == spec


@pytest.mark.parametrize("keys", [(NEW, OLD), (NEW,)], ids=["an old key", "no key"])
async def test_a_redelivery_and_a_retry_carry_no_old_seal(monkeypatch: pytest.MonkeyPatch, keys: tuple[str]) -> None:
    """`haulage reseal` may have counted the runs and passed over the rows since they were read."""
    old, new = make_sealer(OLD), make_sealer(NEW)
    begun: list[Any] = []

    async def note(*arguments: object, **_: object) -> None:
        begun.extend(each for each in arguments if isinstance(each, WebhookDeliveryInput | DownloadSpec))

    now = datetime.now(UTC)
    row = Delivery(
        delivery_id=MESSAGE,
        project_id="prj_1",
        owner_system="downloads",
        owner_id=DOWNLOAD,
        event_type="download.succeeded",
        body=WebhookEvent(type="download.succeeded", timestamp=now, data={}).model_dump_json(),
        url=old.seal("http://receiver").token,
        receiver="receiver",
        endpoint=b"",
        state="failed",
        created_at=now,
        pending_since=now,
    )
    spec = DownloadSpec(task_id=DOWNLOAD, project_id="prj_1", file_name="a.csv", source_url=old.seal("http://source"))
    download = MagicMock(request=spec.model_dump(mode="json"))
    services = MagicMock(sealer=make_sealer(*keys))
    services.settings.engine.task_timeout_seconds = 1.0
    call, reader = MagicMock(services=services), AsyncMock()
    reader.read_status.return_value.state = DownloadState.FAILED
    reader.read_catalogue_row.return_value = download
    monkeypatch.setattr("api.webhooks.webhooks.find_delivery", AsyncMock(return_value=row))
    monkeypatch.setattr("api.webhooks.webhooks.list_last_attempts_by_delivery", AsyncMock(return_value={MESSAGE: []}))
    monkeypatch.setattr("api.webhooks.handle.redeliver", note)
    monkeypatch.setattr(actions, "get_status_reader", lambda _: reader)
    monkeypatch.setattr("api.downloads.actions.quotas.consume_quotas_for_start", lambda *_: nullcontext())
    gone = RPCError("", RPCStatusCode.NOT_FOUND, b"")
    run = AsyncMock()
    run.signal.side_effect = gone
    monkeypatch.setattr(actions, "_get_workflow_handle", lambda *_: run)
    monkeypatch.setattr("api.downloads.actions.creation.start_download", note)
    monkeypatch.setattr(actions, "_wait_until_retry_starts", note)
    owner = WebhookEventSubject(system="downloads", id=DOWNLOAD)

    if OLD not in keys:
        with pytest.raises(Conflict, match="No key in HAULAGE_SECRETS__SEAL opens"):
            await webhooks.redeliver_webhook(call, "prj_1", owner, MESSAGE)
        # Neither counts against the quotas, and a run that waits for a retry has the same request.
        consume = MagicMock(return_value=nullcontext())
        monkeypatch.setattr("api.downloads.actions.quotas.consume_quotas_for_start", consume)
        for answer in (gone, None):
            run.signal.side_effect = answer
            with pytest.raises(Conflict, match="No key in HAULAGE_SECRETS__SEAL opens"):
                await actions.retry_download(call, DownloadPath(task_id=DOWNLOAD))
        assert (begun, consume.called, run.signal.called) == ([], False, False)
        return
    await webhooks.redeliver_webhook(call, "prj_1", owner, MESSAGE)
    await actions.retry_download(call, DownloadPath(task_id=DOWNLOAD))
    run.signal.side_effect = None
    await actions.retry_download(call, DownloadPath(task_id=DOWNLOAD))

    assert [new.open(begun[0].url), new.open(begun[1].source_url)] == ["http://receiver", "http://source"]
    # Also a run that waits for the retry gets it: its own input has the seal of an old key.
    assert new.open(run.signal.await_args.args[1].source_url) == "http://source"


async def test_what_waited_in_a_history_is_saved_without_an_old_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    """An alarm about orders carries the seal of when it was recorded; `haulage reseal` may have run since."""
    save = AsyncMock(return_value=DeliveryState.PENDING)
    monkeypatch.setattr("stores.webhooks.insert_or_reset_delivery", save)
    delivery = WebhookDeliveryInput(
        delivery_id=MESSAGE,
        project_id="prj_1",
        owner=WebhookEventSubject(system="orders", id="7"),
        url=make_sealer(OLD).seal("http://receiver"),
        event=WebhookEvent(type="orders.slice_failed", timestamp=datetime.now(UTC), data={}),
    )
    activities = WebhookActivities(MagicMock(), MagicMock(), make_sealer(NEW, OLD), WebhookSettings())

    await activities.insert_delivery_or_make_pending(delivery)

    assert save.await_args is not None
    assert make_sealer(NEW).open(save.await_args.args[1].url) == "http://receiver"
    assert save.await_args.args[2] == "http://receiver"

    # What no key opens is saved, too: nothing else has the event, and its attempts end with the reason.
    activities = WebhookActivities(MagicMock(), MagicMock(), make_sealer(NEW), WebhookSettings())
    await activities.insert_delivery_or_make_pending(delivery)
    assert save.await_args.args[1:] == (delivery, None)


@pytest.mark.parametrize("unreadable", ["address", "signing secret"])
async def test_attempts_without_a_key_end_as_attempts_without_a_receiver_do(
    unreadable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were repeated for ever, and no list showed why."""
    sealer, url = make_sealer(NEW), make_sealer(OLD if unreadable == "address" else NEW).seal("http://receiver").token
    delivery = SimpleNamespace(
        delivery_id=MESSAGE,
        project_id="prj_1",
        url=url,
        body="{}",
        state="pending",
        receiver="r",
        pending_since=datetime.now(UTC),
        event_type="a.b",
        attempts=8,
    )
    secrets = AsyncMock(side_effect=None if unreadable == "address" else SealUnreadableError("No key opens it."))
    save = AsyncMock()
    monkeypatch.setattr("stores.webhooks.load_delivery_to_attempt", AsyncMock(return_value=delivery))
    monkeypatch.setattr("stores.webhooks.load_or_create_signing_secrets", secrets)
    monkeypatch.setattr("stores.webhooks.save_attempt_and_update_delivery", save)
    settings = WebhookSettings()
    activities = WebhookActivities(MagicMock(), MagicMock(), sealer, settings)
    last = len(settings.retry_pauses_seconds) + 1
    first, final = [
        await ActivityEnvironment().run(
            activities.attempt_delivery, WebhookAttemptInput(delivery_id=MESSAGE, number=number)
        )
        for number in (1, last)
    ]

    assert (first.state, final.state) == (DeliveryState.PENDING, DeliveryState.FAILED)
    assert str(final.error).startswith("Nothing was sent to the receiver. No key ")
    assert [call.args[4] for call in save.await_args_list] == [first, final]


def test_a_source_whose_address_no_key_opens_is_waited_for_with_the_reason() -> None:
    """The status shows it, and if the time of the download ends, so does its fault; another worker may have the key."""
    url, tries = make_sealer(OLD).seal("http://source"), list[PageAttempts]()
    spec = DownloadSpec(task_id=DOWNLOAD, project_id="p", file_name="f", source_url=url)
    for seconds in (1.0, 2.0, 4.0):
        with pytest.raises(RetryLater) as later:
            open_source_address(make_sealer(NEW), spec, tries)
        assert later.value.wait.seconds == seconds
        tries = replace_request_attempts(tries, later.value.wait.tries)

    [waited] = tries
    assert waited.fault is not None
    assert (waited.total_attempts, waited.fault.code) == (3, "seal_unreadable")
    assert open_source_address(make_sealer(NEW, OLD), spec, tries) == ("http://source", {})


def list_marked_columns(metadata: MetaData) -> set[tuple[str, str]]:
    """The columns whose tables say that they are sealed."""
    return {
        (table.name, column.name)
        for table in metadata.tables.values()
        for column in table.columns
        if column.info == SEALED
    }


def test_every_sealed_column_is_listed() -> None:
    """What rotation passes over is lost with the old key; `find_sealed_columns` of a deployment sees unmarked ones."""
    for module in pkgutil.iter_modules(tables.__path__, f"{tables.__name__}."):
        importlib.import_module(module.name)
    assert list_marked_columns(TableRow.metadata) == {(each.table, each.column) for each in sealed.COLUMNS}


def test_a_sealed_column_of_a_new_table_is_seen() -> None:
    """The look at the tables sees what it looks for."""
    metadata = MetaData()
    Table("checks", metadata, Column("check_id", Text), Column("token", Text, info=SEALED))
    assert list_marked_columns(metadata) == {("checks", "token")}


@pytest.mark.parametrize("model", [DownloadSpec, TableSource])
def test_every_sealed_field_of_a_request_is_listed(model: type[DownloadSpec | TableSource]) -> None:
    """By its type."""
    fields = {name for name, field in model.model_fields.items() if field.annotation == SealedText | None}
    assert fields <= set(sealed.REQUEST_FIELDS)
    assert fields
