"""`haulage rotate`, `haulage reseal` and the doctor's check of secrets: what still needs an old key."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from temporalio.client import Client
from temporalio.service import RPCError

from cli.command import print_line
from cli.outside_checks import CheckFailed, open_database_for_check
from dev.embedded.secrets import SECRET_NAMES, remove_old_secrets, rotate_secrets
from domain import webhooks
from domain.downloads import names as downloads
from domain.faults import Fault
from domain.secrets import SealedText, derive_pepper_id
from infra import payloads, temporal
from infra.database import Database
from infra.outages import EngineUnreachable
from infra.secrets import SealUnreadableError, SecretSealer
from infra.settings import Settings
from stores import projects, sealed

SEAL_SETTING: Final = "HAULAGE_SECRETS__SEAL"
PEPPERS_SETTING: Final = "HAULAGE_SECRETS__OTHER_PEPPERS"
SAMPLE_ROWS: Final = sealed.BATCH_ROWS
"""Rows of each table that the doctor reads where no rotation is under way."""
KEYS_SHOWN: Final = 5

_RUNS_WITH_SECRETS: Final = (
    f"ExecutionStatus = 'Running' AND WorkflowType IN ('{downloads.DOWNLOAD_WORKFLOW}', '{webhooks.DELIVERY_WORKFLOW}')"
)
_SEALED: Final = re.compile(rb"gAAAAA[0-9A-Za-z_-]{60,}={0,2}")
"""What Fernet makes, in the JSON of a workflow's input."""


@dataclass(frozen=True, slots=True)
class RunningAndOldKeyRunCounts:
    """Workflows that run with sealed values in their input, which cannot be changed."""

    runs: int
    old: int
    """Those with a value that an old key made."""


async def rotate(data_dir: Path, names: Sequence[str]) -> int:
    """Draw secrets of a stopped `haulage up` anew, all or those named, and print what is to be done."""
    rotate_secrets(data_dir, names or SECRET_NAMES)
    print_line(f"{', '.join(names or SECRET_NAMES)} drawn anew in {data_dir / 'secrets.json'}.")
    print_line("Start `haulage up`; it prints the admin key. Then run `haulage reseal --remove-old`.")
    return 0


async def reseal(settings: Settings, data_dir: Path | None = None) -> int:
    """Seal anew what an old key made, and print what was done; return 1 while something still needs an old key.

    Args:
        data_dir: The folder of the `haulage up` that runs with these settings, to remove old secrets from its file.
    """
    sealer = SecretSealer(settings.secrets)
    # Runs first: what they insert into tables until they have ended is then read below.
    runs = await count_running_and_old_key_runs(await temporal.connect(codec=payloads.build_codec(settings)), sealer)
    async with _open_database(settings) as database:
        counts = [await sealed.reseal_values_under_old_keys(database, sealer, column) for column in sealed.COLUMNS]
        for count in counts:
            print_line(f"{count.name}: {count.old} of {count.rows} sealed anew{_describe_unreadable(count)}")
        print_line(f"running downloads and deliveries: {runs.old} of {runs.runs} hold a value of an old key")
        keys = await _list_keys_of_other_peppers(database, settings)
    unreadable = sum(count.unreadable for count in counts)
    if unreadable:
        print_line(
            f"{unreadable} values are opened by no key of {SEAL_SETTING}: put the key that made them at its end."
        )
    if runs.old:
        print_line("Old sealing keys must stay until these runs have ended. Run this again then.")
    elif not unreadable:
        print_line(f"Only the first key of {SEAL_SETTING} is needed: the others may go.")
    if settings.secrets.other_peppers:
        print_line(f"API keys that still need {PEPPERS_SETTING}: {_describe_keys(keys)}")
    if data_dir:
        needed = {"seal": runs.old or unreadable, "pepper": keys}
        removed = [name for name in SECRET_NAMES if not needed.get(name)]
        remove_old_secrets(data_dir, removed)
        print_line(
            f"Old secrets that are still needed: {', '.join(name for name in needed if needed[name]) or 'none'}."
        )
        print_line("The others are removed from secrets.json, with effect from the next start.")
    return 1 if runs.old or unreadable else 0


async def check_secrets(settings: Settings) -> str:
    """Check that every sealed value can be opened, and that none needs an old key that a command could free it of."""
    if not settings.secrets.seal:
        return f"{SEAL_SETTING} is not set here, so that sealed values were not read"
    try:
        sealer = SecretSealer(settings.secrets)
    except ValueError as error:
        raise CheckFailed(f"{SEAL_SETTING} cannot be used: {error}", "Correct it.") from error
    async with open_database_for_check(settings) as database:
        rows_max = 2**63 if sealer.has_old_keys else SAMPLE_ROWS
        counts = [
            await sealed.count_values_of_old_keys(database, sealer, column, rows_max) for column in sealed.COLUMNS
        ]
        keys = await _list_keys_of_other_peppers(database, settings)
    if lost := [f"{count.name} ({count.unreadable})" for count in counts if count.unreadable]:
        raise CheckFailed(
            f"No key opens some sealed values: {', '.join(lost)}.",
            f"Put the key that made them back at the end of {SEAL_SETTING}.",
        )
    if old := [f"{count.name} ({count.old})" for count in counts if count.old]:
        raise CheckFailed(f"Some rows need an old sealing key: {', '.join(old)}.", "Run `haulage reseal`.")
    if sealer.has_old_keys:
        await _require_no_runs_of_old_keys(settings, sealer)
    found = f"{sum(count.rows for count in counts)} rows are sealed under the first key"
    if settings.secrets.other_peppers:
        found += f"; API keys that still need {PEPPERS_SETTING}: {_describe_keys(keys)}"
    return found


async def _require_no_runs_of_old_keys(settings: Settings, sealer: SecretSealer) -> None:
    try:
        runs = await count_running_and_old_key_runs(
            await temporal.connect(codec=payloads.build_codec(settings)), sealer
        )
    except (EngineUnreachable, Fault, RPCError) as error:
        raise CheckFailed(
            f"Whether running workflows need an old sealing key could not be read: {error}", "See the check `engine`."
        ) from error
    if runs.old:
        raise CheckFailed(
            f"{runs.old} of {runs.runs} running downloads and deliveries hold a value of an old sealing key.",
            f"Keep the old keys in {SEAL_SETTING} until these runs have ended; then run `haulage reseal` again.",
        )


async def count_running_and_old_key_runs(engine: Client, sealer: SecretSealer) -> RunningAndOldKeyRunCounts:
    """Count the running downloads and deliveries, and those whose input holds a value that an old key made."""
    runs = old = 0
    async for run in engine.list_workflows(_RUNS_WITH_SECRETS):
        runs += 1
        handle = engine.get_workflow_handle(run.id, run_id=run.run_id)
        async for event in handle.fetch_history_events(page_size=1):
            given = list(event.workflow_execution_started_event_attributes.input.payloads)
            if codec := engine.data_converter.payload_codec:
                given = await codec.decode(given)
            old += any(_was_sealed_by_old_key(sealer, token) for each in given for token in _SEALED.findall(each.data))
            break
    return RunningAndOldKeyRunCounts(runs, old)


def _was_sealed_by_old_key(sealer: SecretSealer, token: bytes) -> bool:
    try:
        return sealer.reseal(SealedText(token=token.decode())) is not None
    except SealUnreadableError:
        return False  # A text of the caller's that only looks like ours.


def _describe_unreadable(count: sealed.SealedRowCounts) -> str:
    return f", {count.unreadable} opened by no key" if count.unreadable else ""


def _describe_keys(keys: list[str]) -> str:
    more = f" and {len(keys) - KEYS_SHOWN} more" if len(keys) > KEYS_SHOWN else ""
    return f"{', '.join(keys[:KEYS_SHOWN])}{more}" if keys else "none"


async def _list_keys_of_other_peppers(database: Database, settings: Settings) -> list[str]:
    pepper_id = derive_pepper_id(settings.secrets.list_peppers()[0])
    return await projects.list_keys_of_other_peppers(database, pepper_id) if settings.secrets.other_peppers else []


@asynccontextmanager
async def _open_database(settings: Settings) -> AsyncIterator[Database]:
    database = Database(settings.database)
    try:
        yield database
    finally:
        await database.close()
