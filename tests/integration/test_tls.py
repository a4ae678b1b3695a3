"""TLS to Temporal, PostgreSQL and the store: with certificates of both sides, and a sentence for each that is wrong."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from pydantic import SecretStr, ValidationError
from yarl import URL

from dev.embedded.stack import EmbeddedStack, to_environment_variables
from domain.faults import Invalid
from infra import outages, temporal
from infra.component_settings import DatabaseSettings, ObjectSettings, TlsSettings
from infra.database import DATABASE_ERRORS, Database, build_tls_arguments
from infra.objects import ObjectStore, StoreFailure
from infra.settings import Settings
from infra.tls import DATABASE, STORE, build_client_tls_context
from sims.source import Source
from stores import migrate
from tests.support.api import ApiClient
from tests.support.certificates import Authority, Certificate
from tests.support.command import ROOT
from tests.support.downloads import FINAL, expected_rows, parse_csv
from tests.support.tls_peers import TlsDatabase, running_database, running_relay
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack


@dataclass(frozen=True)
class Certificates:
    """Certificates of servers and of ourselves, by what is right or wrong with them."""

    authority: Authority
    stranger: Authority
    server: Certificate
    elsewhere: Certificate
    expired: Certificate
    client: Certificate
    expired_client: Certificate
    strange_client: Certificate


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Made once: each key takes a moment."""
    folder = tmp_path_factory.mktemp("certificates")
    authority, stranger = Authority(folder), Authority(folder / "stranger", "stranger")
    ago = dt.timedelta(days=-1)
    return Certificates(
        authority,
        stranger,
        authority.issue("server", "127.0.0.1", "server.example.com"),
        authority.issue("elsewhere", "elsewhere.example.com"),
        authority.issue("expired", "127.0.0.1", valid=ago),
        authority.issue("client"),
        authority.issue("expired-client", valid=ago),
        stranger.issue("strange-client"),
    )


def tls_of(ca: Authority, client: Certificate | None = None, server_name: str = "") -> TlsSettings:
    """The settings of one side."""
    return TlsSettings(
        ca_file=ca.ca_file,
        cert_file=client and client.cert_file,
        key_file=client and client.key_file,
        server_name=server_name,
    )


@dataclass(frozen=True)
class Case:
    """What is wrong, and the part of the sentence that says so."""

    name: str
    server: Callable[[Certificates], Certificate]
    ours: Callable[[Certificates], TlsSettings]
    wants_client: bool
    sentence: str
    """Names of settings are written `{ca}`, `{cert}`, `{name}` and `{address}`."""


WRONG = [
    Case("expired", lambda c: c.expired, lambda c: tls_of(c.authority), False, "not valid at this time.*{address}"),
    Case("another name", lambda c: c.elsewhere, lambda c: tls_of(c.authority), False, "for another name.*{name}"),
    Case("stranger", lambda c: c.server, lambda c: tls_of(c.stranger), False, "not signed by an authority.*{ca}"),
    Case(
        "wrong server name",
        lambda c: c.server,
        lambda c: tls_of(c.authority, server_name="other.example.com"),
        False,
        "for another name.*{name}",
    ),
    Case("no client", lambda c: c.server, lambda c: tls_of(c.authority), True, "refused our certificate.*{cert}"),
    Case(
        "strange client",
        lambda c: c.server,
        lambda c: tls_of(c.authority, c.strange_client),
        True,
        "refused our certificate.*{cert}",
    ),
    Case(
        "expired client",
        lambda c: c.server,
        lambda c: tls_of(c.authority, c.expired_client),
        True,
        "refused our certificate.*{cert}",
    ),
]
RIGHT = [
    Case("server alone", lambda c: c.server, lambda c: tls_of(c.authority), False, ""),
    Case("both sides", lambda c: c.server, lambda c: tls_of(c.authority, c.client), True, ""),
    Case(
        "by another name",
        lambda c: c.elsewhere,
        lambda c: tls_of(c.authority, c.client, "elsewhere.example.com"),
        True,
        "",
    ),
]
each_wrong = pytest.mark.parametrize("case", WRONG, ids=lambda case: case.name)
each_right = pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)


def engine_environment(address: str, tls: TlsSettings) -> dict[str, str]:
    """The variables of Temporal's own settings."""
    named = {
        "TEMPORAL_ADDRESS": address,
        "TEMPORAL_NAMESPACE": os.environ["TEMPORAL_NAMESPACE"],
        "TEMPORAL_TLS": "true",
        "TEMPORAL_TLS_SERVER_CA_CERT_PATH": tls.ca_file,
        "TEMPORAL_TLS_CLIENT_CERT_PATH": tls.cert_file,
        "TEMPORAL_TLS_CLIENT_KEY_PATH": tls.key_file,
        "TEMPORAL_TLS_SERVER_NAME": tls.server_name,
    }
    return {name: str(value) for name, value in named.items() if value}


@asynccontextmanager
async def relay_of(case: Case, certificates: Certificates, address: str) -> AsyncIterator[str]:
    """A relay with the server's certificate of a case; its address."""
    context = certificates.authority.build_server_context(case.server(certificates), wants_client=case.wants_client)
    async with running_relay(address, context) as port:
        yield f"127.0.0.1:{port}"


def pattern(case: Case, section: str, address: str) -> str:
    """The sentence with the names of one component's settings."""
    if section == "TEMPORAL":
        names = {"ca": "SERVER_CA_CERT_PATH", "cert": "CLIENT_CERT_PATH", "name": "SERVER_NAME"}
        found = {short: f"TEMPORAL_TLS_{name}" for short, name in names.items()}
    else:
        names = {"ca": "CA_FILE", "cert": "CERT_FILE", "name": "SERVER_NAME"}
        found = {short: f"HAULAGE_{section}__TLS__{name}" for short, name in names.items()}
    return case.sentence.format(**found, address=address)


# --- Temporal ---


@each_right
async def test_the_engine_by_tls(stack: EmbeddedStack, namespace: str, certificates: Certificates, case: Case) -> None:
    """The client works through a server that shows a certificate, and that wants ours."""
    async with relay_of(case, certificates, stack.addresses["engine"]) as address:
        client = await temporal.connect(engine_environment(address, case.ours(certificates)))
        assert await temporal.list_missing_search_attributes(client) == []


@each_wrong
async def test_the_engine_with_a_wrong_certificate(
    stack: EmbeddedStack, namespace: str, certificates: Certificates, case: Case
) -> None:
    """The sentence names the variable that mends it."""
    async with relay_of(case, certificates, stack.addresses["engine"]) as address:
        with pytest.raises(outages.EngineUnreachable, match=pattern(case, "TEMPORAL", "TEMPORAL_ADDRESS")):
            await temporal.connect(engine_environment(address, case.ours(certificates)))


@pytest.mark.parametrize("variable", ["SERVER_CA_CERT_PATH", "CLIENT_CERT_PATH", "CLIENT_KEY_PATH"])
async def test_a_file_for_the_engine_that_is_wrong(
    namespace: str, certificates: Certificates, tmp_path: Path, variable: str
) -> None:
    """One that is missing, and one that holds something else."""
    (other := tmp_path / "other.pem").write_text("no certificate")
    for path in (tmp_path / "missing.pem", other):
        environment = engine_environment("127.0.0.1:9", tls_of(certificates.authority, certificates.client))
        with pytest.raises(Invalid, match=f"TEMPORAL_TLS_{variable}"):
            await temporal.connect({**environment, f"TEMPORAL_TLS_{variable}": str(path)})


# --- the store ---


def store_behind(stack: EmbeddedStack, address: str, tls: TlsSettings) -> ObjectSettings:
    """The settings of the stack's store behind a relay."""
    plain = stack.build_settings().objects
    return plain.model_copy(update={"endpoint": address, "secure": True, "tls": tls, "prefix": "tls"})


@each_right
async def test_the_store_by_tls(stack: EmbeddedStack, certificates: Certificates, case: Case) -> None:
    """Objects go through."""
    async with relay_of(case, certificates, stack.build_settings().objects.endpoint) as address:
        store = ObjectStore(store_behind(stack, address, case.ours(certificates)))
        await store.put(case.name, b"content")
        assert await store.get(case.name) == b"content"
        await store.delete(case.name)
        await store.close()


@each_wrong
async def test_the_store_with_a_wrong_certificate(stack: EmbeddedStack, certificates: Certificates, case: Case) -> None:
    """The sentence names the setting that mends it, also where the server only ends the connection."""
    expected = pattern(case, "OBJECTS", "HAULAGE_OBJECTS__ENDPOINT").replace("refused our certificate", "certificate")
    async with relay_of(case, certificates, stack.build_settings().objects.endpoint) as address:
        store = ObjectStore(store_behind(stack, address, case.ours(certificates)))
        with pytest.raises(StoreFailure, match=expected):
            await store.put(case.name, b"content")
        await store.close()


async def test_a_store_without_tls(stack: EmbeddedStack, certificates: Certificates) -> None:
    """TLS that was switched on by mistake is named."""
    settings = store_behind(stack, stack.build_settings().objects.endpoint, tls_of(certificates.authority))
    store = ObjectStore(settings)
    with pytest.raises(StoreFailure, match=r"does not speak TLS.*HAULAGE_OBJECTS__SECURE"):
        await store.put("key", b"content")
    await store.close()


# --- PostgreSQL ---


@pytest.fixture(scope="module")
async def postgres(certificates: Certificates) -> AsyncIterator[TlsDatabase]:
    """One for all: it takes another certificate while it runs."""
    async with running_database(certificates.authority, certificates.server) as database:
        yield database


async def use(postgres: TlsDatabase, case: Case, certificates: Certificates) -> DatabaseSettings:
    """Give the server the certificate of a case; our settings for it."""
    await postgres.use(certificates.authority, case.server(certificates), wants_client=case.wants_client)
    return DatabaseSettings(url=SecretStr(postgres.url), secure=True, tls=case.ours(certificates))


@each_right
async def test_the_database_by_tls(postgres: TlsDatabase, certificates: Certificates, case: Case) -> None:
    """Statements, listeners and migrations go through TLS."""
    settings = await use(postgres, case, certificates)
    await migrate.migrate(settings.url.get_secret_value(), build_tls_arguments(settings))
    database = Database(settings)
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
    heard = database.listen("channel")
    assert await anext(heard) == ""
    await heard.aclose()
    await migrate.require_supported_revision(database)
    await database.close()


@each_wrong
async def test_the_database_with_a_wrong_certificate(
    postgres: TlsDatabase, certificates: Certificates, case: Case
) -> None:
    """The sentence names the setting that mends it, for statements and for the migration."""
    settings = await use(postgres, case, certificates)
    database = Database(settings)
    expected = pattern(case, "DATABASE", "HAULAGE_DATABASE__URL")
    with pytest.raises(outages.DatabaseUnreachable, match=expected):
        await database.now()
    with pytest.raises(outages.DatabaseUnreachable, match=expected):
        await migrate.migrate(settings.url.get_secret_value(), build_tls_arguments(settings))
    await database.close()


async def test_a_database_without_tls(stack: EmbeddedStack, certificates: Certificates) -> None:
    """The embedded one has none."""
    settings = DatabaseSettings(
        url=SecretStr(stack.build_database_url()), secure=True, tls=tls_of(certificates.authority)
    )
    database = Database(settings)
    with pytest.raises(DATABASE_ERRORS, match=r"does not speak TLS.*HAULAGE_DATABASE__SECURE"):
        await database.now()
    await database.close()


# --- all of them ---


@asynccontextmanager
async def running_process(environment: dict[str, str], log: Path, *command: str) -> AsyncIterator[None]:
    """A command of `haulage` until the block ends."""
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cli", *command), cwd=ROOT, env=environment, stdout=file, stderr=file
        )
        try:
            yield
        finally:
            process.terminate()
            await process.wait()


@pytest.mark.long
async def test_api_and_worker_reach_all_components_by_mutual_tls(
    stack: EmbeddedStack,
    namespace: str,
    settings: Settings,
    source: Source,
    postgres: TlsDatabase,
    certificates: Certificates,
    tmp_path: Path,
) -> None:
    """Whole processes, told by variables alone, carry a download from the request to its file."""
    case = next(each for each in RIGHT if each.name == "both sides")
    database = await use(postgres, case, certificates)
    await migrate.migrate(database.url.get_secret_value(), build_tls_arguments(database))
    tls = case.ours(certificates)
    async with (
        relay_of(case, certificates, stack.addresses["engine"]) as engine,
        relay_of(case, certificates, settings.objects.endpoint) as store,
        aiohttp.ClientSession() as session,
    ):
        behind = settings.model_copy(
            update={
                "database": database,
                "objects": settings.objects.model_copy(update={"endpoint": store, "secure": True, "tls": tls}),
                "guard": settings.guard.model_copy(update={"allow": [source.base.removeprefix("http://")]}),
                "api": settings.api.model_copy(update={"port": 0}),
            }
        )
        environment = {**os.environ, **to_environment_variables(behind), **engine_environment(engine, tls)}
        api_log, worker_log = tmp_path / "api.log", tmp_path / "worker.log"
        async with (
            running_process(environment, api_log, "api"),
            running_process(environment, worker_log, "worker", "--queues=downloads", "--queues=downloads-fetch"),
        ):
            [address] = await eventually(lambda: re.findall(r'"address": ?"([^"]+)"', api_log.read_text()))
            api = ApiClient(address, behind, session)
            _, key = await api.make_project()
            wanted = {"source_url": source.url(rows=250, seed=3), "page_size": 100}
            path = f"/v1/downloads/{(await api.ask('POST', '/v1/downloads', key=key, json=wanted)).body['task_id']}"

            async def read_end() -> str:
                state = str((await api.ask("GET", path, key=key)).body["state"])
                return state if state in FINAL else ""

            assert await eventually(read_end) == "succeeded", worker_log.read_text()
            reply = await api.ask("GET", f"{path}/file", key=key)
            link = URL(reply.headers["Location"], encoded=True)
            async with session.get(link, ssl=build_client_tls_context(tls, STORE)) as file:
                assert parse_csv(await file.read()) == expected_rows(3, range(250))
    assert link.host_port_subcomponent == store


# --- the settings themselves ---


@pytest.mark.parametrize("section", ["database", "objects"])
async def test_a_file_that_is_wrong(certificates: Certificates, tmp_path: Path, section: str) -> None:
    """One that is missing, one that holds something else, and a key that belongs to another certificate."""
    (other := tmp_path / "other.pem").write_text("no certificate")
    right = tls_of(certificates.authority, certificates.client)
    prefix = f"HAULAGE_{section.upper()}__TLS__"
    wrong = [
        *(("ca_file", path, "CA_FILE") for path in (tmp_path / "missing.pem", other)),
        *(("cert_file", path, "CERT_FILE") for path in (tmp_path / "missing.pem", other)),
        *(("key_file", path, "KEY_FILE") for path in (tmp_path / "missing.pem", other)),
        ("key_file", certificates.server.key_file, "KEY_FILE"),
    ]
    for field, path, name in wrong:
        tls = right.model_copy(update={field: path})
        with pytest.raises(Invalid, match=f"{prefix}{name}"):
            build_client_tls_context(tls, {"database": DATABASE, "objects": STORE}[section])


@pytest.mark.parametrize("kind", [DatabaseSettings, ObjectSettings])
def test_settings_that_would_have_no_effect_are_refused(
    certificates: Certificates, kind: type[DatabaseSettings | ObjectSettings]
) -> None:
    """A plain connection would ignore them, and a certificate without its key shows nothing."""
    with pytest.raises(ValidationError, match="no effect while SECURE is false"):
        kind(tls=tls_of(certificates.authority))
    with pytest.raises(ValidationError, match="CERT_FILE and KEY_FILE belong together"):
        TlsSettings(cert_file=certificates.client.cert_file)
