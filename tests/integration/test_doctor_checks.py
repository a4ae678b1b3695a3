"""What `haulage doctor` says of what is outside, as it should be and as it should not."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sqlalchemy import text
from temporalio.worker import Worker

from cli import doctor, outside_checks
from cli.outside_checks import CheckFailed
from domain.addresses.messages import Topic
from domain.orders import names as order_names
from domain.tasks import names
from infra import temporal
from infra.database import Database
from infra.settings import Settings
from sims.gse.disks import HostDisks
from sims.gse.server import running_gse
from sims.gse.world import GseWorld
from sims.oss.server import running_oss
from sims.platforms.scenario import PlatformScenario
from sims.pubsub.broker import Broker
from sims.pubsub.server import running_pubsub
from stores.pauses import save_pause
from stores.tables.orders import OrderPlatform, OrderSlice
from stores.tables.shared import Project
from tests.support import modules, pubsub, transfers
from tests.support.orders import running_orders
from tests.support.waiting import eventually
from tests.support.webhooks import running_webhooks
from workflows.tasks.lane import TaskLane

pytestmark = pytest.mark.stack


async def find_trouble(check: doctor.Check, settings: Settings) -> str:
    """Return what a check finds wrong."""
    with pytest.raises(CheckFailed) as failure:
        await check(settings)
    return str(failure.value)


async def test_a_gse_that_does_not_answer_is_named(settings: Settings, tmp_path: Path) -> None:
    """One that answers is well; none at all is no fault."""
    async with running_gse(GseWorld(transfers.QUICK, HostDisks(tmp_path / "hosts", links=True))) as gse:
        reached = transfers.with_gse(settings, gse, tmp_path)
        assert "answers" in await outside_checks.check_gse(reached)
    lost = reached.gse.model_copy(update={"base_url": "http://127.0.0.1:9", "retries": 0})

    assert "could not be reached" in await find_trouble(
        outside_checks.check_gse, settings.model_copy(update={"gse": lost})
    )
    without = settings.gse.model_copy(update={"base_url": ""})
    assert "is not set" in await outside_checks.check_gse(settings.model_copy(update={"gse": without}))


async def test_subscriptions_that_are_missing_are_named(settings: Settings) -> None:
    """They are asked for without a message being taken."""
    async with running_pubsub(Broker()) as sim, pubsub.publisher(sim.base) as publisher:
        pulling = settings.model_copy(update={"addresses": pubsub.with_pubsub(settings, sim.base)})
        assert "answered 404" in await find_trouble(outside_checks.check_pubsub, pulling)
        subscriptions = pulling.addresses.pubsub.subscriptions
        named = (subscriptions.swap, subscriptions.create_update, subscriptions.delete)
        for topic, name in zip(Topic, named, strict=True):
            await publisher.subscribe(topic, name)

        assert "may be pulled" in await outside_checks.check_pubsub(pulling)
    assert "is not set" in await outside_checks.check_pubsub(settings)


async def test_a_module_that_does_not_answer_is_named(settings: Settings, tmp_path: Path) -> None:
    """With what it says; the others answer."""
    async with running_oss(tmp_path) as oss:
        called = modules.module_settings(oss.base, tmp_path, retries=0)
        reached = settings.model_copy(update={"addresses": called})
        assert "answer" in await outside_checks.check_modules(reached)
        lost = called.modules.od.model_copy(update={"base_url": "http://127.0.0.1:9"})
        some = called.modules.model_copy(update={"od": lost})
        partly = settings.model_copy(update={"addresses": called.model_copy(update={"modules": some})})
        trouble = await find_trouble(outside_checks.check_modules, partly)

    assert trouble.startswith("od: ")
    assert "im: " not in trouble


async def test_receivers_that_refuse_for_long_are_named(settings: Settings) -> None:
    """One that has just refused is asked again, and is no fault yet."""
    async with running_webhooks(settings, retry_pauses_seconds=[3_600]) as deliveries:
        order = await deliveries.send(deliveries.receiver.url(answers="500"))
        await deliveries.wait_for_state(order, "pending", attempts=1)
        assert "asked again" in await outside_checks.require_no_long_failing_receivers(settings)
        async with deliveries.services.database.session() as session:
            await session.execute(
                text("UPDATE webhook_deliveries SET pending_since = pending_since - interval '2 hours'")
            )
        trouble = await find_trouble(outside_checks.require_no_long_failing_receivers, settings)

    assert deliveries.receiver.base.removeprefix("http://") in trouble


async def test_platforms_that_are_not_fetched_are_named(settings: Settings, database: Database) -> None:
    """With the cause of each."""
    assert await outside_checks.check_stored_health_of_platforms(settings) == "none is set up"
    since = datetime.now(UTC)
    async with database.session() as session:
        session.add(Project(project_id="prj_1", name="", created_at=since))
        await session.flush()
        named: dict[str, Any] = {
            "project_id": "prj_1",
            "kind": "plain",
            "shop": "s",
            "base_url": "",
            "created_at": since,
        }
        session.add(OrderPlatform(platform="7", unserved_since=since, **named))
        session.add(OrderPlatform(platform="8", credentials_failed_since=since, **named))

    trouble = await find_trouble(outside_checks.check_stored_health_of_platforms, settings)
    assert "7: no worker serves it" in trouble
    assert "8: it refuses its credentials" in trouble


async def test_platforms_are_counted_by_what_is_so(settings: Settings) -> None:
    """Fetched, paused, set up and not configured; failed slices are for a person to look at."""
    async with running_orders(settings, queues=[]) as orders:
        orders.play(PlatformScenario(orders=0))
        await orders.set_up("1", is_paused=False)
        for number in ("2", "3"):
            await orders.set_up(number)
        await orders.configure("2")
        counted = "1 fetched, 1 paused, 1 paused and not configured"
        await eventually(lambda: _is_counted(settings, counted))
        now = (await orders.row("1")).created_at.replace(microsecond=0)
        end_at = now + timedelta(minutes=10)
        times: dict[str, Any] = {"claimed_at": now, "failed_at": now, "start_at": now, "end_at": end_at}
        async with orders.services.database.session() as session:
            session.add(OrderSlice(platform="1", track="live", **times))
        found = await outside_checks.check_stored_health_of_platforms(settings)
        await save_pause(orders.services.database, order_names.SYSTEM, "ann", "a test wants it")
        paused = await outside_checks.check_stored_health_of_platforms(settings)
    assert found == f"{counted}; 1 slice of 1 failed: `haulage orders status NAME` says why"
    assert isinstance(found, outside_checks.CheckPassedWithWarning)
    assert paused.startswith("1 paused, 2 paused and not configured;")


async def _is_counted(settings: Settings, counted: str) -> bool:
    return await outside_checks.check_stored_health_of_platforms(settings) == counted


def write_certificate(folder: Path, days: int) -> tuple[Path, Path]:
    """Write a certificate of 127.0.0.1 that ends in some days, and its key; return their paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / f"{days}.pem", folder / f"{days}.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


@asynccontextmanager
async def running_tls(certificate: Path, key: Path) -> AsyncIterator[str]:
    """Serve TLS, and nothing by it, at a port of its own."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def close(_reader: Any, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(close, "localhost", 0, ssl=context)
    async with server:
        yield f"https://localhost:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(("days", "is_well"), [(5, False), (100, True)])
async def test_certificates_that_end_soon_are_named(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, *, is_well: bool
) -> None:
    """Two weeks before, those of servers and that of the engine's client."""
    certificate, key = write_certificate(tmp_path, days)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with running_tls(certificate, key) as address:
        gse = settings.gse.model_copy(update={"base_url": address})
        secure = settings.model_copy(update={"gse": gse})
        if is_well:
            assert (await outside_checks.check_certificates(secure)).startswith("1, the first ends on")
        else:
            assert address.removeprefix("https://") in await find_trouble(outside_checks.check_certificates, secure)
    monkeypatch.setenv(outside_checks.CLIENT_CERTIFICATE, str(certificate))
    if not is_well:
        assert "5.pem" in await find_trouble(outside_checks.check_certificates, settings)


async def test_workers_of_another_version_are_named(settings: Settings) -> None:
    """With the queues that they poll."""
    engine = await temporal.connect()
    async with Worker(engine, task_queue=names.QUEUE, workflows=[TaskLane], build_id="haulage-0.0.0"):

        async def is_named() -> bool:
            checks = {result.name: result async for result in doctor.iterate_check_results(settings)}
            assert not checks["skew"].ok
            assert f"haulage-0.0.0 polls {names.QUEUE}" in checks["skew"].found
            return True

        assert await eventually(is_named)


async def test_what_hangs_is_named_and_the_rest_is_checked(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that was suspended would answer in minutes, if ever."""

    async def hang(_settings: Settings) -> str:
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr(doctor, "_check_bucket", hang)
    monkeypatch.setattr(doctor, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(doctor, "ORDERLY_SECONDS", 0.0)
    chosen = ["bucket", "versions", "disk"]
    checks = {result.name: result async for result in doctor.iterate_check_results(settings, chosen)}

    assert list(checks)[-1] == "bucket"
    assert {name: each.ok for name, each in checks.items()} == {"bucket": False, "versions": True, "disk": True}
    assert checks["bucket"].found.startswith("There was no answer within 1 s.")
