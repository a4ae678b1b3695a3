"""Outside services that repeat the secrets they are sent: these are nowhere in clear, whatever system called them.

Histories are unpacked; tables, the store, logs, metrics, answers of the API, texts of errors and traces are searched.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import jwt
import pytest
from aiohttp import encode_basic_auth
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from pydantic import SecretStr

from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from infra.address_settings import AllModulesSettings, ModuleSettings, PubSubPushSettings, PubSubSettings
from sims.platforms.dialects.plain import PLAIN
from tests.support import echo, secret_search
from tests.support.caller import Caller, running_caller
from tests.support.deployment import SIGNED, Deployment, Deployments
from tests.support.echo import EchoService
from tests.support.trace_collector import Collector, running_collector
from tests.support.transfers import CONTENT, sha256
from tests.support.waiting import eventually

UPRN = 66_000_001
FAULTS = ("refuses", "fails", "raves", "errs")


@dataclass
class Walk:
    """The deployment, the echo, what was traced, and every secret that was planted."""

    deployment: Deployment
    service: EchoService
    collector: Collector
    planted: dict[str, str]
    answers: dict[str, bytes]

    def plant(self, what: str) -> str:
        """Another secret; letters and digits, as keys of most services are."""
        secret = self.planted[what] = f"{secrets.token_hex(6)}Zq{secrets.token_hex(10)}"
        return secret

    async def keep(self, name: str, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Keep what the API shows to the admin, and return it."""
        shown = await self.deployment.as_admin("GET", path, params=query)
        self.answers[f"answers of {name}"] = json.dumps(shown).encode()
        return shown


def make_account(folder: Path) -> tuple[Path, str]:
    """A service account's key file, and the text of its key without its frame."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    content = {"client_email": "haulage@example.com", "private_key": text, "private_key_id": "kid-1"}
    (path := folder / "pubsub-key.json").write_text(json.dumps(content))
    return path, "".join(text.splitlines()[5:8])


@pytest.fixture
async def walk(deployments: Deployments, tmp_path: Path) -> AsyncIterator[Walk]:
    """Processes of their own whose outside services are all the echo."""
    planted: dict[str, str] = {}

    def plant(what: str) -> str:
        planted[what] = f"{secrets.token_hex(6)}Zq{secrets.token_hex(10)}"
        return planted[what]

    async with echo.running_echo() as service, running_collector() as collector:
        account, planted["key of the service account"] = make_account(tmp_path)
        payload_key = planted["key of payloads"] = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
        modules = {}
        for each, fault in zip(Module, FAULTS, strict=True):
            (tmp_path / f"module-{each}.json").write_text(json.dumps({"token": plant(f"token of module {each}")}))
            modules[each.value] = ModuleSettings(
                base_url=f"{service.base}/modules/{fault}",
                credentials=f"module-{each}",
                retries=1,
                retry_pause_seconds=0.01,
            )
        changes: dict[str, dict[str, Any]] = {
            "guard": {"allow": [service.base.removeprefix("http://")]},
            "gse": {
                "base_url": f"{service.base}/gse",
                "app_secret": SecretStr(plant("secret of GSE")),
                "retries": 1,
                "retry_pause_seconds": 0.01,
            },
            "transfers": {
                "repository": f"{service.base}/repository/refuses/{{signature}}",
                "repository_authorization": SecretStr(f"Bearer {plant('authorization of the repository')}"),
                "window_seconds": 1,
                "timeout_seconds": 20.0,
                "retries": 0,
            },
            "traces": {"endpoint": collector.address},
            "secrets": {"payloads": [SecretStr(payload_key)]},
            "webhooks": {"retry_pauses_seconds": [0.1]},
            "downloads": {"page_retries": 1, "max_task_retries": 0, "retry_pause_seconds": 0.01},
            "addresses": {
                "credentials_folder": tmp_path,
                "modules": AllModulesSettings(**modules),
                "pubsub": PubSubSettings(project="p", base_url=f"{service.base}/pubsub", key_file=str(account)),
                "push": PubSubPushSettings(
                    secret=SecretStr(plant("secret of pushes")),
                    audience="https://haulage.example.com",
                    email="pusher@example.com",
                    keys_url=f"{service.base}/keys/fails",
                ),
                "pause_seconds": 1.0,
                "failed_cycles_max": 1,
                "group_messages_max": 10,
                "threshold": 100,
            },
        }
        deployment = await deployments.get(changes)
        planted["admin key"] = deployment.installation.admin_key
        planted["pepper"] = deployment.settings.secrets.pepper.get_secret_value()
        planted["sealing key"] = deployment.settings.secrets.seal[0].get_secret_value()
        stack = deployment.installation.stack
        planted["password of the database"] = stack.secrets.database_password
        planted["key of the store"] = stack.secrets.object_secret_key
        yield Walk(deployment, service, collector, planted, {})
        # No other test has these settings, and the echo ends here.
        await deployments.close()


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_what_services_repeat_is_nowhere_in_clear(walk: Walk) -> None:
    """Each service answers with all it was sent, as a refusal, a failure, no JSON, and an error in JSON."""
    async with running_caller(walk.deployment) as caller:
        walk.planted["project key"] = caller.session.headers["Authorization"].removeprefix("Bearer ")
        await plant_in_downloads(walk, caller)
        await plant_in_transfers(walk, caller)
        await plant_in_orders(walk, caller)
        await plant_in_addresses(walk)
        await plant_in_tasks(walk, caller)
        await plant_wrong_keys(walk)
    called = {"source", "callback", "repository", "gse", "platform", "modules", "pubsub", "keys"}
    assert walk.service.seen.keys() >= called

    places = {**await secret_search.collect_places(walk.deployment), **walk.answers}
    places["traces"] = json.dumps(walk.collector.spans).encode()
    # Answers were quoted where that helps: the search looks where an echo would be.
    for place in ("histories", "tables", "answers of downloads", "traces"):
        assert echo.MARK.encode() in places[place], place
    assert any(echo.MARK.encode() in text for place, text in places.items() if place.startswith("logs/"))
    found = secret_search.find_secrets(walk.planted, places)
    assert found == [], "\n".join(map(str, found))


async def plant_in_downloads(walk: Walk, caller: Caller) -> None:
    """Addresses, headers and callbacks, with each kind of wrong answer."""
    for fault in FAULTS:
        source = f"{walk.service.base}/source/{fault}?token={walk.plant(f'token of a source that {fault}')}"
        basic = encode_basic_auth("user", walk.plant(f"password of a source that {fault}"))
        callback = f"{walk.service.base}/callback/fails?token={walk.plant(f'callback, source {fault}')}"
        task_id = await caller.start(
            source,
            headers={"X-Token": walk.plant(f"header of a source that {fault}"), "Authorization": basic},
            callback=callback,
            page_size=100,
        )
        status = await caller.wait_for_end(task_id)
        assert status["state"] == "failed", status
        paths = (f"/v1/downloads/{task_id}/attempts", f"/v1/downloads/{task_id}/deliveries", "/v1/downloads")
        texts = [json.dumps(status).encode()]
        texts += [await (await caller.call("GET", path, 200)).read() for path in paths]
        walk.answers["answers of downloads"] = walk.answers.get("answers of downloads", b"") + b"\n".join(texts)
        ticket = await (await caller.call("POST", f"/v1/downloads/{task_id}/ticket", 201)).json()
        walk.planted[f"ticket {fault}"] = ticket["url"].partition("ticket=")[2]


async def plant_in_transfers(walk: Walk, caller: Caller) -> None:
    """One file that the repository refuses, and one that it has, for which GSE is asked."""
    texts: list[bytes] = []
    for content in (b"refused", CONTENT):
        body = {
            "biz_id": 2,
            "app_id": 1,
            "file_path": "/etc/app.conf",
            "file_name": "app.conf",
            "signature": sha256(content),
            "target_user": "root",
            "target_file_dir": "/data/secrets",
            "target_agent_id": "agent-1",
        }
        joined = await caller.call("POST", "/v1/transfers", 202, json=body)
        path = f"/v1/transfers/{quote((await joined.json())['task_id'])}"

        async def end(path: str = path) -> bytes:
            text = await (await caller.call("GET", path, 200)).read()
            return text if json.loads(text)["status"] in {"Failed", "Timeout"} else b""

        texts.append(await eventually(end))
    texts.append(await (await caller.call("GET", "/v1/transfers/jobs", 200)).read())
    walk.answers["answers of transfers"] = b"\n".join(texts)


async def plant_in_orders(walk: Walk, caller: Caller) -> None:
    """Tokens of platforms that answer wrongly in each way, and the addresses of their alarms."""
    folder = walk.deployment.settings.orders.credentials_folder
    for fault in FAULTS:
        number = f"echo-{fault}"
        content = {"key": "app", "secret": walk.plant(f"secret of {number}"), "token": walk.plant(f"token of {number}")}
        (folder / f"{number}.json").write_text(json.dumps(content))
        notify_url = f"{walk.service.base}/callback/refuses?token={walk.plant(f'alarms of {number}')}"
        platform = {
            "project_id": caller.project_id,
            "kind": "plain",
            "shop": "shop",
            "base_url": f"{walk.service.base}/platform/{fault}",
            "capability": PLAIN.model_dump(mode="json"),
            "notify_url": notify_url,
        }
        config = {
            "credentials": number,
            "starttime": "2026-01-01T00:00:00Z",
            "interval": 3600,
            "retryintv": 0.1,
            "retries": 1,
        }
        await walk.deployment.as_admin("PUT", f"/v1/platforms/{number}", json=platform)
        await walk.deployment.as_admin("PUT", f"/v1/platforms/{number}/config", json=config)
        await walk.deployment.as_admin("POST", f"/v1/platforms/{number}/trigger")

        async def is_told(number: str = number) -> bool:
            shown = await walk.deployment.as_admin("GET", f"/v1/platforms/{number}")
            return bool(shown["clock_fault"] or shown["credentials_fault"])

        await eventually(is_told)
        await walk.keep(f"platform {number}", f"/v1/platforms/{number}")
        await walk.keep(f"slices of {number}", f"/v1/platforms/{number}/slices")


async def plant_in_addresses(walk: Walk) -> None:
    """A change that no module takes, a push with a wrong token, and pulls of topics that are refused."""
    address = f"{walk.deployment.api}/v1/addresses/events/{Topic.CREATE_UPDATE}"
    envelope = {
        "message": {
            "messageId": "echo-1",
            "data": base64.b64encode(json.dumps({"uprn": UPRN, "address_id": 1, "record": {}}).encode()).decode(),
        },
        "subscription": "projects/p/subscriptions/s",
    }
    claims = {"aud": "https://haulage.example.com", "email": "pusher@example.com", "iss": "accounts.google.com"}
    forged = walk.planted["forged token of a push"] = jwt.encode(claims, walk.plant("key of a forger") * 2)
    wrong = walk.plant("wrong secret of a push")
    await walk.deployment.as_admin("POST", "/v1/addresses/cycle/resume", json=SIGNED)
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{address}?token={wrong}", json=envelope) as refused:
            assert refused.status == 401
            walk.answers["answer to a wrong push"] = await refused.read()
        async with session.post(address, json=envelope, headers={"Authorization": f"Bearer {forged}"}) as refused:
            assert refused.status in {401, 503}
            walk.answers["answer to a forged push"] = await refused.read()
        async with session.post(f"{address}?token={walk.planted['secret of pushes']}", json=envelope) as taken:
            assert taken.status == 204

    async def has_failed() -> Any:
        listed = await walk.deployment.as_admin("GET", "/v1/addresses/messages", params={"uprn": UPRN})
        # Modules that do not answer as they should cost no retry: the message waits for them.
        return [each for each in listed["items"] if each["waits"] and walk.service.seen.get("modules", 0) >= 4]

    await eventually(has_failed)
    [message] = (await walk.keep("addresses", "/v1/addresses/messages", {"uprn": UPRN}))["items"]
    await walk.keep("a message", f"/v1/addresses/messages/{message['message_id']}")
    await walk.keep("the cycle", "/v1/addresses/cycle")
    await walk.keep("the configuration of addresses", "/v1/addresses/config")
    await walk.keep("the overview", "/v1/overview")


async def plant_in_tasks(walk: Walk, caller: Caller) -> None:
    """The key in the address, as flowSvr's clients send it, and leases that are wrong."""
    key = walk.planted["project key"]
    headers = {"Authorization": encode_basic_auth("", key)}
    lease = walk.plant("a lease that is wrong")
    async with aiohttp.ClientSession(headers=headers) as session:
        for route, body in (
            ("register_task_type", {"task_type_data": {"task_type": "echo", "max_retry_num": 1}}),
            (
                "create_task",
                {"task_data": {"task_type": "echo", "task_id": "echo-1", "user_id": "u", "task_content": "{}"}},
            ),
            ("set_task", {"task_data": {"task_id": "echo-1", "lease": lease, "status": 3}}),
        ):
            async with session.post(f"{walk.deployment.api}/v1/{route}", json=body) as answer:
                assert answer.status == 200
                if route != "set_task":  # tells its caller which lease it was
                    walk.answers[f"answer of {route}"] = await answer.read()
    walk.answers["answers of tasks"] = await (await caller.call("GET", "/v1/get_task_schedule_cfg_list", 200)).read()


async def plant_wrong_keys(walk: Walk) -> None:
    """Keys that were mistyped, in a header, a query, a cookie and a sign-in: logs are read by others."""
    async with aiohttp.ClientSession() as session:
        wrong = {place: f"hlg_{walk.plant(f'key in {place}')}" for place in ("header", "query", "cookie", "sign-in")}
        base = walk.deployment.api
        calls = (
            session.get(f"{base}/v1/downloads", headers={"Authorization": f"Bearer {wrong['header']}"}),
            session.get(f"{base}/v1/downloads?api_key={wrong['query']}", headers={"Authorization": "Bearer none"}),
            session.get(f"{base}/v1/downloads", cookies={"haulage_session": wrong["cookie"]}),
            session.post(f"{base}/v1/session", json={"api_key": wrong["sign-in"]}),
        )
        for place, call in zip(wrong, calls, strict=True):
            async with call as answer:
                assert answer.status in {401, 422}, await answer.text()
                walk.answers[f"answer to a key in {place}"] = await answer.read()
