"""Checks of `haulage doctor` of what is outside: platforms, receivers, GSE, modules, Pub/Sub, and certificates."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cryptography import x509
from temporalio.client import Client

from cli import wording
from clients.gse import GseClient, GseFailure
from clients.modules import ModuleFailure, ModulesClient
from clients.pubsub import PubSubClient, PubSubFailure
from domain.addresses.operations import Module
from domain.faults import Fault, format_count
from domain.orders import names
from infra import outages, starts, temporal
from infra.database import DATABASE_ERRORS, Database
from infra.outages import EngineUnreachable
from infra.settings import Settings
from services import addresses
from stores import pauses, webhooks
from stores.orders import health

TIMEOUT_SECONDS: Final = 10.0
RECEIVER_PATIENCE: Final = timedelta(hours=1)
CERTIFICATE_DAYS_MIN: Final = 14
PROBED_AGENT: Final = "haulage-doctor"
CLIENT_CERTIFICATE: Final = "TEMPORAL_TLS_CLIENT_CERT_PATH"


class CheckPassedWithWarning(str):
    """What was found where nothing stands still, and a person should look all the same."""

    __slots__ = ()


class CheckFailed(Exception):
    """A failed check: what was found, and the remedy."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(f"{_add_full_stop(found)} {remedy}".rstrip())


def _add_full_stop(found: str) -> str:
    """Return a message of a library with its full stop."""
    return found if found.endswith((".", "!", "?")) else f"{found}."


@asynccontextmanager
async def open_database_for_check(settings: Settings) -> AsyncIterator[Database]:
    """Open the database; raise CheckFailed where it does not answer, or has another revision."""
    database = Database(settings.database)
    try:
        yield database
    except Fault as fault:
        raise CheckFailed(fault.record.message, fault.record.hint) from fault
    except DATABASE_ERRORS as error:
        if refusal := outages.find_postgres_error_message(error):
            raise CheckFailed(
                f"PostgreSQL answers, and refuses: {refusal}", "Correct HAULAGE_DATABASE__URL, or see PostgreSQL's log."
            ) from error
        reason = str(error).partition("\n")[0]
        raise CheckFailed(
            f"PostgreSQL does not answer: {reason}", "Start it, or correct HAULAGE_DATABASE__URL."
        ) from error
    finally:
        await database.close()


async def connect_engine_for_check() -> Client:
    """Connect the engine; raise CheckFailed where it does not answer, or is not as it should be."""
    try:
        return await temporal.connect()
    except EngineUnreachable as error:
        raise CheckFailed(str(error), "Start Temporal, or set TEMPORAL_ADDRESS to where it runs.") from error
    except Fault as fault:
        raise CheckFailed(fault.record.message, fault.record.hint) from fault


async def check_stored_health_of_platforms(settings: Settings) -> str:
    """Check that a worker serves each platform, that its clock and its credentials are good, and no slice failed."""
    client = await connect_engine_for_check()
    async with open_database_for_check(settings) as database:
        seen = await health.load_platforms_health(database)
        is_system_paused = await pauses.is_system_paused(database, names.SYSTEM)
    schedules = await starts.list_paused_schedules(client)
    troubles = {
        "no worker serves it": [row.platform for row in seen.rows if row.unserved_since],
        "its clock cannot be read": [row.platform for row in seen.rows if row.clock_failed_since],
        "it refuses its credentials": [row.platform for row in seen.rows if row.credentials_failed_since],
    }
    if found := [f"{', '.join(platforms)}: {what}" for what, platforms in troubles.items() if platforms]:
        raise CheckFailed(f"Platforms are not fetched: {'; '.join(found)}.", "The platform's page says what to do.")
    paused = {
        row.platform
        for row in seen.rows
        if is_system_paused or names.build_cycle_schedule_id(row.platform) in schedules
    }
    unconfigured = {row.platform for row in seen.rows if row.starts_at is None} & paused - seen.configured
    counts = {
        "fetched": len(seen.rows) - len(paused),
        "paused": len(paused - unconfigured),
        "paused and not configured": len(unconfigured),
    }
    counted = ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "none is set up"
    if failed := {platform: each.slices_failed for platform, each in seen.counts.items() if each.slices_failed}:
        slices = f"{format_count(sum(failed.values()), 'slice')} of {', '.join(sorted(failed))} failed"
        return CheckPassedWithWarning(f"{counted}; {slices}: `haulage orders status NAME` says why")
    return counted


async def require_no_long_failing_receivers(settings: Settings) -> str:
    """Check that no receiver has refused deliveries for long."""
    async with open_database_for_check(settings) as database:
        failing = await webhooks.list_receivers_of_unfinished_failing_deliveries(database)
    before = datetime.now(UTC) - RECEIVER_PATIENCE
    if late := [each for each in failing if each.oldest_at < before]:
        named = ", ".join(
            f"{each.receiver} ({each.count} wait, the first since {wording.format_time(each.oldest_at)})"
            for each in late
        )
        raise CheckFailed(f"Receivers of webhooks do not accept them: {named}.", "Tell their owners.")
    return f"{len(failing)} are asked again" if failing else "all accept what is sent"


async def check_gse(settings: Settings) -> str:
    """Check that GSE answers, and accepts the credentials."""
    if not settings.gse.base_url:
        return "HAULAGE_GSE__BASE_URL is not set, so that transfers cannot be sent"
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS), GseClient(settings.gse) as gse:
            await gse.get_agent_states([settings.gse.source_agent_id or PROBED_AGENT])
    except (GseFailure, TimeoutError) as error:
        raise CheckFailed(
            _describe_error(error), "Correct HAULAGE_GSE__…, or have the gateway's operator look."
        ) from error
    return f"{settings.gse.base_url} answers"


async def check_modules(settings: Settings) -> str:
    """Check that each module of addresses that is configured lists an address."""
    async with open_database_for_check(settings) as database:
        effective = await addresses.load_effective_settings(database, settings.addresses)
    named = [module for module in Module if getattr(effective.modules, module).base_url]
    async with ModulesClient(effective) as client:
        answers = await asyncio.gather(*(_call_module_and_describe_failure(client, module) for module in named))
    if failed := [answer for answer in answers if answer]:
        raise CheckFailed(" ".join(failed), "See the page of module owners.")
    return f"{', '.join(named)} answer" if named else "none is configured"


async def _call_module_and_describe_failure(client: ModulesClient, module: Module) -> str:
    """Return what is wrong with a module; nothing if it answers."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await client.list_addresses(module, 0, 1)
    except (ModuleFailure, TimeoutError) as error:
        return f"{module}: {_describe_error(error)}"
    return ""


async def check_pubsub(settings: Settings) -> str:
    """Check that the subscriptions are there and may be used, where this installation pulls."""
    pubsub = settings.addresses.pubsub
    if not pubsub.project:
        return "HAULAGE_ADDRESSES__PUBSUB__PROJECT is not set, so that nothing is pulled"
    named = (pubsub.subscriptions.swap, pubsub.subscriptions.create_update, pubsub.subscriptions.delete)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS), PubSubClient(pubsub) as client:
            for name in named:
                await client.require_pullable_subscription(name)
    except (PubSubFailure, TimeoutError) as error:
        raise CheckFailed(_describe_error(error), "Correct HAULAGE_ADDRESSES__PUBSUB__….") from error
    return f"{', '.join(named)} may be pulled"


async def check_certificates(settings: Settings) -> str:
    """Check that no certificate of what we call, and none of ours for the engine, ends soon."""
    ends = {}
    for name, url in _list_secure_addresses(settings).items():
        ends[name] = await _read_server_certificate_end(name, url)
    if path := os.environ.get(CLIENT_CERTIFICATE):
        ends[path] = _read_certificate_file_end(Path(path))
    limit = datetime.now(UTC) + timedelta(days=CERTIFICATE_DAYS_MIN)
    if soon := [f"{name} ({end:%d %b %Y})" for name, end in ends.items() if end < limit]:
        raise CheckFailed(f"Certificates end within {CERTIFICATE_DAYS_MIN} days: {', '.join(soon)}.", "Renew them.")
    if not ends:
        return "nothing is called over TLS"
    return f"{len(ends)}, the first ends on {min(ends.values()):%d %b %Y}"


def _list_secure_addresses(settings: Settings) -> Mapping[str, str]:
    """Return the addresses that are called over TLS, by host and port."""
    objects = f"https://{settings.objects.endpoint}" if settings.objects.secure else ""
    modules = [getattr(settings.addresses.modules, module).base_url for module in Module]
    pubsub = settings.addresses.pubsub.base_url if settings.addresses.pubsub.project else ""
    own = [settings.api.public_base, settings.objects.public_base]
    urls = [objects, settings.gse.base_url, *modules, pubsub, *own]
    return {urlsplit(url).netloc: url for url in urls if url.startswith("https://")}


async def _read_server_certificate_end(name: str, url: str) -> datetime:
    parts = urlsplit(url)
    context = ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE"))
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port or 443, ssl=context)
            end = ssl.cert_time_to_seconds(writer.get_extra_info("peercert")["notAfter"])
            writer.close()
    except (OSError, TimeoutError) as error:
        raise CheckFailed(f"{name} could not be asked for its certificate: {_describe_error(error)}", "") from error
    return datetime.fromtimestamp(end, UTC)


def _read_certificate_file_end(path: Path) -> datetime:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except (OSError, ValueError) as error:
        raise CheckFailed(f"{CLIENT_CERTIFICATE} names no certificate: {error}", "Correct it.") from error


def _describe_error(error: BaseException) -> str:
    return str(error) or f"there was no answer within {TIMEOUT_SECONDS:g} s"
