"""Rotation of the installation's own secrets: sealing keys, peppers, the admin key, and the file of `haulage up`."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest
from pydantic import SecretStr
from sqlmodel import select

from cli import secrets
from cli.outside_checks import CheckFailed
from dev.embedded.secrets import load_or_create_secrets
from dev.embedded.stack import EmbeddedStack, run_stack
from domain.downloads.models import DownloadSpec, TableSource
from domain.faults import Conflict
from domain.secrets import SealedText, parse_api_key
from infra.database import Database
from infra.objects import ObjectStore, StoreFailure
from infra.secrets import SecretSealer
from infra.settings import Settings
from stores import migrate, sealed
from stores.tables.downloads import Download
from stores.tables.shared import Delivery
from stores.webhooks import load_or_create_signing_secrets
from tests.support.api import running_api
from tests.support.command import start_command, wait_for_exit
from tests.support.stack import ANY_PORTS
from tests.support.waiting import eventually
from tests.support.webhooks import Webhooks, running_webhooks

pytestmark = pytest.mark.stack

OLD, NEW = "old pepper " * 4, "new pepper " * 4
SOURCE = "http://source/rows?token=secret"


def make_key() -> str:
    """Another sealing key."""
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


def with_seal(settings: Settings, *keys: str) -> Settings:
    """The same settings with these sealing keys, the newest first."""
    changed = settings.secrets.model_copy(update={"seal": [SecretStr(each) for each in keys]})
    return settings.model_copy(update={"secrets": changed})


def with_peppers(settings: Settings, pepper: str, *others: str) -> Settings:
    """The same settings with these peppers."""
    update = {"pepper": SecretStr(pepper), "other_peppers": [SecretStr(each) for each in others]}
    return settings.model_copy(update={"secrets": settings.secrets.model_copy(update=update)})


def make_download_row(sealer: SecretSealer, project_id: str) -> Download:
    """A download whose request holds sealed values, also of one of its tables."""
    table = TableSource(source_url=sealer.seal(SOURCE), source_headers=sealer.seal("{}"))
    spec = DownloadSpec(
        task_id="dl_rotated", project_id=project_id, file_name="a.csv", source_url=sealer.seal(SOURCE), tables=[table]
    )
    return Download(
        task_id=spec.task_id,
        project_id=project_id,
        file_name=spec.file_name,
        type=spec.type,
        state="failed",
        created_at=datetime.now(UTC),
        request=spec.model_dump(mode="json"),
    )


async def test_a_sealing_key_is_rotated(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """The doctor says that rows need the old key; sealed anew they do not, and a second time there is nothing to do."""
    old, new = make_key(), make_key()
    async with running_webhooks(with_seal(settings, old)) as webhooks:
        await webhooks.rotate(0)
        order = await webhooks.send(webhooks.receiver.url())
        await webhooks.wait_for_state(order, "succeeded", 1)
        await eventually(lambda: has_ended(webhooks))
        database = webhooks.services.database
        async with database.session() as session:
            session.add(make_download_row(webhooks.services.sealer, webhooks.project_id))
        both = with_seal(settings, new, old)
        with pytest.raises(CheckFailed, match=r"secrets of webhooks \(1\).*of deliveries \(1\).*of downloads \(1\)"):
            await secrets.check_secrets(both)

        assert await secrets.reseal(both) == 0
        first = capsys.readouterr().out
        assert await secrets.reseal(both) == 0
        second = capsys.readouterr().out

        alone = SecretSealer(with_seal(settings, new).secrets)
        async with database.session() as session:
            delivery = (await session.exec(select(Delivery))).one()
            request = (await session.exec(select(Download.request))).one()
        [signing] = await load_or_create_signing_secrets(database, alone, webhooks.project_id)
        assert "sealed under the first key" in await secrets.check_secrets(with_seal(settings, new))
        with pytest.raises(CheckFailed, match=r"No key opens some sealed values: .*Put the key"):
            await secrets.check_secrets(with_seal(settings, old))

    for column in ("signing secrets of webhooks", "addresses of deliveries", "requests of downloads"):
        assert f"{column}: 1 of 1 sealed anew\n" in first
    assert first.endswith("the others may go.\n")
    assert ": 1 of" not in second
    assert signing.startswith("whsec_")
    assert alone.open(SealedText(token=delivery.url)) == webhooks.receiver.url()
    spec = DownloadSpec.model_validate(request)
    opened = (spec.source_url, spec.tables[0].source_url, spec.tables[0].source_headers)
    assert [alone.open(each) for each in opened if each] == [SOURCE, SOURCE, "{}"]


async def has_ended(webhooks: Webhooks) -> bool:
    """Whether no delivery runs any more: its input would still need the key."""
    runs = await secrets.count_running_and_old_key_runs(webhooks.services.engine, webhooks.services.sealer)
    return runs.runs == 0


async def test_a_running_delivery_keeps_the_old_key(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """The input of a workflow cannot be changed: the command says so, and fails until the run has ended."""
    old, new = make_key(), make_key()
    async with running_webhooks(with_seal(settings, old)) as webhooks:
        order = await webhooks.send(webhooks.receiver.url(answers="500"))
        await webhooks.wait_for_state(order, "pending", 1)
        code = await secrets.reseal(with_seal(settings, new, old))
        with pytest.raises(CheckFailed, match=r"1 of 1 running downloads and deliveries hold a value of an old .* key"):
            await secrets.check_secrets(with_seal(settings, new, old))

    assert code == 1
    said = capsys.readouterr().out
    assert "running downloads and deliveries: 1 of 1 hold a value of an old key" in said
    assert "Old sealing keys must stay until these runs have ended." in said


async def test_a_pepper_is_rotated(settings: Settings) -> None:
    """Keys are accepted under both; one that was used is good without the old pepper, one that was not is named."""
    async with running_api(with_peppers(settings, OLD)) as api:
        (_, used), (_, unused) = await api.make_project(), await api.make_project()
    both = with_peppers(settings, NEW, OLD)
    async with running_api(both) as api:
        signed_in = await api.ask("POST", "/v1/session", json={"api_key": used})
        cookie = signed_in.headers["Set-Cookie"].partition(";")[0]
        assert (await api.ask("GET", "/v1/session", headers={"Cookie": cookie})).status == 200
        assert (await api.ask("GET", "/v1/session", key=used)).status == 200
    key = parse_api_key(unused)
    assert key
    found = await secrets.check_secrets(both)
    assert found.endswith(f"; API keys that still need HAULAGE_SECRETS__OTHER_PEPPERS: {key.key_id}")
    async with running_api(with_peppers(settings, NEW)) as api:
        assert (await api.ask("GET", "/v1/session", key=used)).status == 200
        assert (await api.ask("GET", "/v1/session", key=unused)).code == "key_unknown"


async def test_the_admin_key_is_rotated(settings: Settings) -> None:
    """Two are good at the same time; the old one is refused when it is gone."""
    old = settings.api.admin_key
    new = SecretStr("a new admin key, long enough")
    both = settings.api.model_copy(update={"admin_key": new, "admin_keys": {"old": old}})
    async with running_api(settings.model_copy(update={"api": both})) as api:
        for key in (old, new):
            assert (await api.ask("GET", "/v1/projects", key=key.get_secret_value())).status == 200
    alone = settings.api.model_copy(update={"admin_key": new})
    async with running_api(settings.model_copy(update={"api": alone})) as api:
        assert (await api.ask("GET", "/v1/projects", key=old.get_secret_value())).status == 401
        assert (await api.ask("GET", "/v1/projects", key=new.get_secret_value())).status == 200


async def test_a_row_that_changes_meanwhile_is_left_alone(settings: Settings) -> None:
    """What a running server writes is newer than what was read."""
    column = sealed.COLUMNS[0]
    async with running_webhooks(settings) as webhooks:
        await webhooks.rotate(0)
        database = webhooks.services.database
        async with database.connection() as connection:
            await connection.execute(
                sealed.build_compare_and_replace_statement(column), ["1"], ["what was read"], ["what was sealed anew"]
            )
        [signing] = await load_or_create_signing_secrets(database, webhooks.services.sealer, webhooks.project_id)
    assert signing.startswith("whsec_")


@asynccontextmanager
async def running_folder(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EmbeddedStack]:
    """The components of a data folder, to which the `TEMPORAL_…` variables lead."""
    async with run_stack(data_dir, ui=False, for_tests=True, ports=ANY_PORTS) as stack:
        for name in ("TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE"):
            monkeypatch.setenv(name, stack.build_environment()[name])
        yield stack


async def read_status(settings: Settings, path: str, key: str) -> int:
    """What an API with these settings answers."""
    async with running_api(settings) as api:
        return (await api.ask("GET", path, key=key)).status


async def read_object(settings: Settings, key: str) -> bytes:
    """What the object store holds."""
    objects = ObjectStore(settings.objects)
    try:
        return await objects.get(key)
    finally:
        await objects.close()


@pytest.mark.long
async def test_the_secrets_of_a_data_folder_are_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of them, twice before a start: data and keys of projects are good after it, and no old secret is."""
    async with running_folder(tmp_path, monkeypatch) as stack:
        first, before = stack.secrets, stack.build_settings()
        await migrate.migrate(stack.build_database_url())
        async with running_api(before) as api:
            (project_id, used), (_, unused) = await api.make_project(), await api.make_project()
        database, objects = Database(before.database), ObjectStore(before.objects)
        async with database.session() as session:
            session.add(make_download_row(SecretSealer(before.secrets), project_id))
        await database.close()
        await objects.put("kept", b"before")
        await objects.close()
        with pytest.raises(Conflict, match="is held by process"):
            await secrets.rotate(tmp_path, [])
    assert await secrets.rotate(tmp_path, []) == 0
    typed = await wait_for_exit(await start_command("rotate", "--data-dir", str(tmp_path), env={}))
    assert (typed.code, typed.err) == (0, "")
    assert typed.out.startswith("database_password, object_secret_key, admin_key, seal, pepper drawn anew in ")

    async with running_folder(tmp_path, monkeypatch) as stack:
        after = stack.build_settings()
        assert not first.model_dump(exclude={"old"}).items() & stack.secrets.model_dump(exclude={"old"}).items()
        admin = after.api.admin_key.get_secret_value()
        assert await read_status(after, "/v1/projects", first.admin_key) == 401
        assert await read_status(after, "/v1/projects", admin) == 200
        assert await read_status(after, "/v1/session", used) == 200
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(replace(stack, secrets=first).build_database_url().replace("+asyncpg", ""))
        assert await read_object(after, "kept") == b"before"
        with pytest.raises(StoreFailure):
            await read_object(replace(stack, secrets=first).build_settings(), "kept")

        capsys.readouterr()
        assert await secrets.reseal(after, tmp_path) == 0
        said = capsys.readouterr().out
        assert "requests of downloads: 1 of 1 sealed anew" in said
        assert "Old secrets that are still needed: pepper." in said
        assert load_or_create_secrets(tmp_path).old.keys() == {"pepper"}
        assert await read_status(after, "/v1/session", unused) == 200
        assert await secrets.reseal(after, tmp_path) == 0
        assert load_or_create_secrets(tmp_path).old == {}
        alone = replace(stack, secrets=load_or_create_secrets(tmp_path)).build_settings()
        assert [await read_status(alone, "/v1/session", key) for key in (used, unused)] == [200, 200]
        assert "1 rows are sealed under the first key" in await secrets.check_secrets(alone)
