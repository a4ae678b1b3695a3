"""Encrypted payloads at work: what the engine holds, switching on and off while work is under way, and lost keys."""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.protobuf import json_format
from pydantic import SecretStr
from structlog.testing import capture_logs
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.worker import Replayer

import worker
from cli import doctor
from domain.downloads import names
from domain.faults import Invalid
from infra import payloads, temporal
from infra.database import Database
from infra.settings import Settings
from services import services
from stores import payload_keys
from tests.support.api import ApiClient, Reply, running_api
from tests.support.downloads import QUEUES, Downloads, running_downloads
from tests.support.waiting import eventually
from tests.support.worker import running_worker

pytestmark = pytest.mark.stack

UI = "http://temporal.example.com:8233"


def make_key() -> str:
    """Another key."""
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


KEY = make_key()


def with_keys(settings: Settings, *keys: str, encrypts: bool = True) -> Settings:
    """The same settings with these keys, the newest first."""
    return settings.model_copy(
        update={
            "secrets": settings.secrets.model_copy(update={"payloads": [SecretStr(each) for each in keys]}),
            "engine": settings.engine.model_copy(update={"encrypt_payloads": encrypts, "ui_url": UI}),
        }
    )


@pytest.fixture
async def exports(settings: Settings) -> AsyncIterator[Downloads]:
    """API, worker and source, with encryption."""
    async with running_downloads(with_keys(settings, KEY)) as running:
        yield running


async def read_everything(engine: Client) -> bytes:
    """All that the engine answers about all runs, by a client without keys."""
    texts: list[bytes] = []
    async for run in engine.list_workflows():
        handle = engine.get_workflow_handle(run.id, run_id=run.run_id)
        texts += [event.SerializeToString() for event in (await handle.fetch_history()).events]
        texts.append((await handle.describe()).raw_description.SerializeToString())
    return b"\n".join(texts)


async def run_both_ways(exports: Downloads, control: str) -> None:
    """Run an export that succeeds and one whose source is wrong; both have a name that is no secret to the API."""
    good = await exports.run(exports.source.url(rows=300), page_size=100, file_name=control)
    assert (good["state"], good["rows"], good["file_name"]) == ("succeeded", 300, f"{control}.csv")
    bad = await exports.run(exports.source.url(rows=300, faults="not_json", rate=1), page_size=100, file_name=control)
    assert (bad["state"], bad["file_name"]) == ("failed", f"{control}.csv")
    # Attempts and faults are read from histories.
    reply = await exports.api_client.ask("GET", f"/v1/downloads/{bad['task_id']}/attempts", key=exports.key)
    assert reply.status == 200, reply.body


async def test_the_engine_holds_ciphertext(exports: Downloads) -> None:
    """Inputs, results, memos, heartbeats, summaries and failures; ids, types and search attributes stay readable."""
    control = f"control-{secrets.token_hex(6)}"
    await run_both_ways(exports, control)
    held = await read_everything(await temporal.connect())
    assert control.encode() not in held
    assert b"json/plain" in held, "of search attributes"
    assert b"binary/encrypted" in held
    assert exports.project_id.encode() in held, "of workflow ids and search attributes"


async def test_without_encryption_it_is_all_there(settings: Settings) -> None:
    """The search of the test above looks at the right bytes."""
    control = f"control-{secrets.token_hex(6)}"
    async with running_downloads(settings) as exports:
        await run_both_ways(exports, control)
        held = await read_everything(await temporal.connect())
    assert control.encode() in held
    assert b"binary/encrypted" not in held


async def test_a_key_is_known_as_soon_as_schedules_are_encrypted_with_it(settings: Settings) -> None:
    """A process that starts without it afterwards says so, instead of leaving schedules that nothing can read."""
    known: list[str] = []

    async def look(_engine: Client, database: Database, _settings: Settings) -> None:
        known.extend(each.key_id for each in await payload_keys.list_used_payload_keys(database))

    await services.prepare_installation(with_keys(settings, KEY), look)
    assert known == [payloads.PayloadEncryptionKey(KEY).key_id]
    with pytest.raises(Invalid, match="Temporal holds data that was encrypted with the key"):
        await services.prepare_installation(with_keys(settings, make_key()), look)


@asynccontextmanager
async def restarted(exports: Downloads, settings: Settings) -> AsyncIterator[Downloads]:
    """API and worker of the same installation with other settings of payloads."""
    await exports.stop_worker()
    changed = exports.services.settings.model_copy(update={"secrets": settings.secrets, "engine": settings.engine})
    async with running_api(changed) as api_client, running_worker(changed, QUEUES) as running:
        yield Downloads(api_client, exports.source, running.services, exports.project_id, exports.key, running)


@pytest.mark.parametrize("way", ["on", "off", "rotated"])
@pytest.mark.long
async def test_runs_go_on_when_it_is_switched(settings: Settings, way: str) -> None:
    """Begun without and ended with it, the other way round, or with another key; the mixed history replays."""
    old, new = make_key(), make_key()
    before, after = {
        "on": (with_keys(settings), with_keys(settings, new)),
        "off": (with_keys(settings, old), with_keys(settings, old, encrypts=False)),
        "rotated": (with_keys(settings, old), with_keys(settings, new, old)),
    }[way]
    before = before if before.secrets.payloads else settings
    async with running_downloads(before) as exports:
        task_id = await exports.start(exports.source.url(rows=3_000, delay_ms=150), page_size=100)

        async def has_begun() -> bool:
            return bool((await exports.status(task_id))["rows"])

        await eventually(has_begun)
        async with restarted(exports, after) as later:
            status = await later.wait_for_end(task_id)
            assert (status["state"], status["rows"]) == ("succeeded", 3_000)
            workflow_id = names.build_download_workflow_id(exports.project_id, task_id)
            history = await later.services.engine.get_workflow_handle(workflow_id).fetch_history()
    encodings = {b"binary/encrypted" in event.SerializeToString() for event in history.events}
    assert encodings == {True, False}
    plugin = temporal.build_plugin(codec=payloads.build_codec(after))
    await Replayer(workflows=worker.list_workflows(), plugins=[plugin]).replay_workflow(history)


async def test_a_process_without_a_key_does_not_start(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """It says which key is missing; with it back, or given up in words, it starts."""
    old, new = make_key(), make_key()
    for held in (with_keys(settings, old), with_keys(settings, new, old)):
        async with services.open_services(held) as connected:
            await services.require_revision_and_record_key_use(connected)
    [lost] = payloads.EncryptingCodec([old], encrypts=True).key_ids
    for held in (with_keys(settings, new), with_keys(settings, make_key(), new)):
        async with services.open_services(held) as connected:
            with pytest.raises(Invalid, match=rf"the key {lost}, .*PAYLOADS does not have it. Put it back"):
                await services.require_revision_and_record_key_use(connected)
    await doctor.run_and_print_checks(with_keys(settings, new), "a test", as_json=True)
    [found] = [each for each in json.loads(capsys.readouterr().out)["checks"] if each["name"] == "database"]
    assert (found["ok"], lost in found["found"]) == (False, True)
    given_up = with_keys(settings, new)
    secrets_ = given_up.secrets.model_copy(update={"payloads_given_up": [lost]})
    async with services.open_services(given_up.model_copy(update={"secrets": secrets_})) as connected:
        await services.require_revision_and_record_key_use(connected)
    # Encryption that is switched off by mistake is noticed, too.
    async with services.open_services(settings) as connected:
        with pytest.raises(Invalid, match="PAYLOADS does not have it"):
            await services.require_revision_and_record_key_use(connected)


async def test_the_api_names_a_lost_key_at_once(exports: Downloads) -> None:
    """Its answer does not wait for anything: 503 with the sentence, and the same answer with the key is 200."""
    # Without a total one fetcher reads it page by page, for longer than another API takes to start.
    url = exports.source.url(rows=100_000, delay_ms=300, no_total=1)
    task_id = await exports.start(url, page_size=100)

    async def has_begun() -> bool:
        return bool((await exports.status(task_id))["rows"])

    await eventually(has_begun)
    async with running_api(with_keys(exports.services.settings, make_key())) as stranger:
        reply = await stranger.ask("GET", f"/v1/downloads/{task_id}", key=exports.key)
        assert (reply.status, reply.code) == (503, "unavailable")
        assert "HAULAGE_SECRETS__PAYLOADS" in reply.body["detail"]
        assert reply.headers["Retry-After"]
    assert (await exports.status(task_id))["state"] in {"running", "succeeded"}


async def ask_codec(api_client: ApiClient, step: str, each: dict[str, object], **options: Any) -> Reply:
    """Ask the codec end point as the Web UI and the command line do."""
    return await api_client.ask("POST", f"/v1/codec/{step}", json={"payloads": [each]}, **options)


def to_json(payload: Payload) -> dict[str, object]:
    """A payload as Temporal writes it in JSON."""
    return dict(json_format.MessageToDict(payload))


async def sign_in(api_client: ApiClient, key: str) -> dict[str, str]:
    """The cookie of a console session."""
    reply = await api_client.ask("POST", "/v1/session", json={"api_key": key})
    return {"Cookie": reply.headers["Set-Cookie"].partition(";")[0]}


async def test_the_web_ui_and_the_command_line_decode(settings: Settings) -> None:
    """By Temporal's protocol, with the admin key or the console's session; what is plain comes back as it is."""
    async with running_api(with_keys(settings, KEY)) as api_client:
        admin = settings.api.admin_key.get_secret_value()
        codec = payloads.EncryptingCodec([KEY], encrypts=True)
        plain = Payload(metadata={"encoding": b"json/plain"}, data=b'"clear"')
        [hidden] = await codec.encode([plain])
        for payload in (hidden, plain):
            reply = await ask_codec(api_client, "decode", to_json(payload), key=admin)
            assert (reply.status, reply.body) == (200, {"payloads": [to_json(plain)]})
        encoded = await ask_codec(api_client, "encode", to_json(plain), key=admin)
        [sent] = encoded.body["payloads"]
        assert await codec.decode([json_format.ParseDict(sent, Payload())]) == [plain]

        browser = {**await sign_in(api_client, admin), "Sec-Fetch-Site": "same-site", "X-Namespace": "default"}
        with capture_logs() as logs:
            reply = await ask_codec(api_client, "decode", to_json(hidden), headers={**browser, "Origin": UI})
        assert (reply.status, reply.body) == (200, {"payloads": [to_json(plain)]})
        assert [each["actor"] for each in logs if each["event"] == "payloads_decrypted"] == ["admin"]
        assert reply.headers["Access-Control-Allow-Origin"] == UI
        assert reply.headers["Access-Control-Allow-Credentials"] == "true"

        [lost] = await payloads.EncryptingCodec([make_key()], encrypts=True).encode([plain])
        reply = await ask_codec(api_client, "decode", to_json(lost), key=admin)
        assert (reply.status, reply.code) == (409, "payload_key_missing")
        assert "HAULAGE_SECRETS__PAYLOADS" in reply.body["detail"]
        damaged = {**to_json(hidden), "data": to_json(lost)["data"]}
        assert (await ask_codec(api_client, "decode", damaged, key=admin)).code == "payload_damaged"
        assert (await ask_codec(api_client, "decode", {"data": "?"}, key=admin)).code == "payload_malformed"


async def test_nobody_else_decodes(settings: Settings) -> None:
    """No project's key, no page of another origin, and nothing without a key."""
    async with running_api(with_keys(settings, KEY)) as api_client:
        [hidden] = await payloads.EncryptingCodec([KEY], encrypts=True).encode([Payload(data=b"clear")])
        _, key = await api_client.make_project()
        for step in ("decode", "encode"):
            assert (await ask_codec(api_client, step, to_json(hidden), key=key)).code == "admin_key_needed"
            assert (await ask_codec(api_client, step, to_json(hidden))).code == "key_missing"
            cookie = await sign_in(api_client, settings.api.admin_key.get_secret_value())
            for origin in ("http://evil.example.com", f"{UI}.evil.example.com", "null"):
                headers = {**cookie, "Origin": origin, "Sec-Fetch-Site": "same-site"}
                reply = await ask_codec(api_client, step, to_json(hidden), headers=headers)
                assert reply.code == "session_origin_unproven"
                assert "Access-Control-Allow-Origin" not in reply.headers


async def test_browsers_may_ask_first(settings: Settings) -> None:
    """The preflight is answered for the Web UI alone, and on no other route."""
    async with running_api(with_keys(settings, KEY)) as api_client:
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,x-namespace"}
        reply = await api_client.ask("OPTIONS", "/v1/codec/decode", headers={"Origin": UI, **asked})
        assert reply.status == 204
        assert reply.headers["Access-Control-Allow-Origin"] == UI
        assert "X-Namespace" in reply.headers["Access-Control-Allow-Headers"]
        other = await api_client.ask(
            "OPTIONS", "/v1/codec/decode", headers={"Origin": "http://evil.example.com", **asked}
        )
        assert "Access-Control-Allow-Origin" not in other.headers
        elsewhere = await api_client.ask("OPTIONS", "/v1/downloads", headers={"Origin": UI, **asked})
        assert (elsewhere.status, "Access-Control-Allow-Origin" in elsewhere.headers) == (405, False)
