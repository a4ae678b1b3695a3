"""`haulage reconcile`: after a restore, bring database, engine and object store together, and say what is not there.

A backup holds database and engine of one moment, and a restored installation goes on from there as after a crash of
all its processes at that moment. What may differ is what such a crash cannot bring about: an engine that was lost or
restored to another moment, objects that were removed meanwhile, and ids that were given out after the backup.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from api.downloads.responses import build_memo
from cli.command import print_line
from domain.downloads import names as download_names
from domain.downloads.models import DownloadSpec, DownloadState, StoredFile
from domain.orders import names as order_names
from domain.secrets import SealedText
from domain.tasks import names as task_names
from domain.tasks.activity_models import LaneInput
from domain.tasks.messages import TaskTypeRules
from domain.transfers.models import FailureReason, TargetEndAndReason, TransferState
from domain.webhooks import WebhookDeliveryInput, WebhookEvent, WebhookEventSubject, build_delivery_workflow_id
from infra import outages, payloads, starts, temporal
from infra.database import Database
from infra.interceptors import ALL_PROJECTS
from infra.objects import ObjectStore
from infra.settings import Settings
from stores import restored, table_copies
from stores.downloads import catalogue
from stores.tasks import types
from stores.transfers import jobs, targets
from systems import System
from workflows.downloads import handle as downloads
from workflows.orders import handle as orders
from workflows.tasks import handle as lanes
from workflows.webhooks import handle as deliveries

REASON: Final = "haulage reconcile: the restored database does not know its project"
_RUNNING: Final = "ExecutionStatus = 'Running'"
_CYCLE_PREFIX: Final = order_names.build_cycle_schedule_id("")
_LOST_JOB: Final = TargetEndAndReason(
    state=TransferState.TIMEOUT,
    reason=FailureReason.DEADLINE,
    message="Its job was lost with the engine before a backup was restored: GSE may have sent the file or not. "
    "Look at the host, or ask again.",
)


_UNKNOWN_SINCE: Final = (
    "What was accepted {since} is unknown here: callers repeat it, with the same Idempotency-Key or task_id.",
    "Transfers that were accepted {since} may have reached their hosts; asked for again, they are sent again.",
    "Tasks that were held or set {since} are as they were: those that have ended since are handed out again.",
    "Messages of addresses that were acknowledged {since} are not in the log, though modules may have applied them.",
    "  Seek the subscriptions to an hour before that time, or have the messages published again: those that the log",
    "  has are not received twice. A swap that modules have is then applied twice: have a createUpdate of what is",
    "  at both its UPRNs published afterwards.",
    "API keys that were revoked {since} are good again: revoke them again. Keys made since are gone.",
)


@dataclass(frozen=True, slots=True)
class ClientsOfRestoredComponents:
    """The clients of what was restored."""

    settings: Settings
    database: Database
    objects: ObjectStore
    engine: Client

    @property
    def task_timeout(self) -> timedelta:
        """How long a worker may take over a task of a workflow."""
        return timedelta(seconds=self.settings.engine.task_timeout_seconds)

    async def is_running(self, workflow_id: str) -> bool:
        """Return whether the engine has a running workflow with this id."""
        try:
            description = await self.engine.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            if not outages.is_workflow_or_schedule_missing(error):
                raise
            return False
        return description.status is WorkflowExecutionStatus.RUNNING


async def reconcile_all_systems(settings: Settings, engine: Client | None = None) -> list[str]:
    """Reconcile all systems, and let processes start; return a sentence for each thing that was found. Repeatable.

    Raises:
        Conflict: API or worker processes are connected to the database.
    """
    own = settings.database.model_copy(update={"application_name": table_copies.APPLICATION})
    found: list[str] = []
    async with table_copies.open_connection_without_limits(settings.database) as connection:
        await table_copies.require_no_connected_process(connection, settings.database.application_name)
        await table_copies.skip_ids_possibly_used_after_backup(connection)
        database, objects = Database(own), ObjectStore(settings.objects)
        try:
            client = engine or await temporal.connect(codec=payloads.build_codec(settings))
            parts = ClientsOfRestoredComponents(settings, database, objects, client)
            for reconcile in (_terminate_workflows_of_unknown_projects, *BY_SYSTEM.values(), _restart_lost_deliveries):
                found += [sentence async for sentence in reconcile(parts)] if reconcile else []
        finally:
            await objects.close()
            await database.close()
        await table_copies.allow_starts_on_restored_database(connection)
    return found


async def reconcile_and_print_findings(settings: Settings) -> int:
    """Reconcile, and print what was found.

    Raises:
        Conflict: A process is connected, or a restore broke off before all rows and objects were there.
    """
    async with table_copies.open_connection_without_limits(settings.database) as connection:
        await table_copies.require_no_unfinished_restore(connection)
    print_findings_and_manual_checks(await reconcile_all_systems(settings))
    return 0


def print_findings_and_manual_checks(found: list[str], taken_at: datetime | None = None) -> None:
    """Print what was found, and what only people can compare."""
    for sentence in found or ["Database, engine and object store agree: nothing was to be mended."]:
        print_line(sentence)
    since = f"after {taken_at:%Y-%m-%d %H:%M:%S} UTC" if taken_at else "after the backup"
    for sentence in _UNKNOWN_SINCE:
        print_line(sentence.format(since=since))


async def _terminate_workflows_of_unknown_projects(parts: ClientsOfRestoredComponents) -> AsyncIterator[str]:
    """Terminate workflows of projects that the database does not know."""
    known = await restored.list_project_ids(parts.database)
    async for run in parts.engine.list_workflows(_RUNNING):
        project_id = run.typed_search_attributes.get(temporal.PROJECT)
        if project_id not in {None, ALL_PROJECTS, *known}:
            await _terminate(parts.engine, run.id)
            yield f"{run.id}: ended, because its project {project_id} is not in the database."


async def _terminate(engine: Client, workflow_id: str) -> None:
    try:
        await engine.get_workflow_handle(workflow_id).terminate(reason=REASON)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise


async def _restart_or_expire_downloads(parts: ClientsOfRestoredComponents) -> AsyncIterator[str]:
    """Start downloads again whose workflow is gone; mark those expired whose file is; count files of unknown ones."""
    unfinished = (DownloadState.PENDING, DownloadState.RUNNING)
    for row in await restored.list_downloads_in_states(parts.database, *unfinished):
        spec = DownloadSpec.model_validate(row.request)
        if not await parts.is_running(downloads.get_download_handle(parts.engine, row.project_id, row.task_id).id):
            await downloads.start_download(parts.engine, spec, build_memo(spec), parts.task_timeout, allow_restart=True)
            yield f"Download {row.task_id}: its workflow was gone, and it is begun anew."
    for row in await restored.list_downloads_in_states(parts.database, DownloadState.SUCCEEDED):
        file = StoredFile.model_validate(row.file)
        if await parts.objects.head(file.key) is None:
            spec = DownloadSpec.model_validate(row.request)
            await catalogue.delete_file_and_mark_expired(parts.database, parts.objects, spec)
            yield f"Download {row.task_id}: its file {file.name} is not in the store, and it is marked as expired."
    stored = {tuple(each.key.split("/")[1:3]) for each in await parts.objects.list(download_names.FILES)}
    if unknown := len(stored - await restored.list_download_keys(parts.database)):
        yield f"Files of {unknown} unknown downloads are in the store: only a rule of the bucket removes them."


async def _end_targets_of_jobs_without_workflow(parts: ClientsOfRestoredComponents) -> AsyncIterator[str]:
    """End the targets of jobs whose workflow is gone."""
    for job in await restored.list_unfinished_jobs(parts.database):
        if not await parts.is_running(job.job_id):
            await targets.end_unfinished_targets(parts.database, job.job_id, job.shards, _LOST_JOB)
            retention = timedelta(seconds=parts.settings.transfers.kept_seconds)
            await jobs.mark_job_ended_and_count_outcomes(parts.database, job.job_id, retention)
            yield f"Transfer {job.job_id}: its workflow was gone; targets without a result end as Timeout."


async def _create_and_remove_platform_schedules(parts: ClientsOfRestoredComponents) -> AsyncIterator[str]:
    """Make schedules of platforms that are missing, and remove those of platforms that are not there."""
    marks = await restored.list_platforms_with_project_and_watermark(parts.database)
    kept = {order_names.build_cycle_schedule_id(mark.platform) for mark in marks}
    known: set[str] = set()
    async for listed in await parts.engine.list_schedules():
        known.add(listed.id)
        if listed.id.startswith(_CYCLE_PREFIX) and listed.id not in kept:
            await starts.remove_schedule(parts.engine, listed.id)
            yield f"Schedule {listed.id}: removed, because its platform is not in the database."
    for mark in marks:
        if order_names.build_cycle_schedule_id(mark.platform) not in known:
            await orders.find_or_create_cycle_schedule(parts.engine, mark.platform, mark.project_id)
            yield f"Platform {mark.platform}: its schedule was gone, and is made again."
        since = f"from {mark.complete_to:%Y-%m-%d %H:%M:%S} UTC on" if mark.complete_to else "from its start on"
        yield f"Platform {mark.platform}: its orders are read again {since}."


async def _start_missing_lanes_and_open_unknown(parts: ClientsOfRestoredComponents) -> AsyncIterator[str]:
    """Start lanes that are gone, which are empty then, and open lanes that only the engine knows."""
    for lane, count in (await restored.list_open_lanes(parts.database)).items():
        if not await parts.is_running(task_names.build_lane_workflow_id(lane)):
            type_, pos = lane
            empty = LaneInput(type=type_, pos=pos, rules=TaskTypeRules())
            await lanes.start_lane(parts.engine, empty, f"lane {pos} of {type_}")
            if count:  # one that was never used may not have been started yet
                yield f"Lane {pos} of {type_}: its workflow was gone with its tasks, {count} when last saved."
    last = await restored.load_last_lane_positions(parts.database)
    async for run in parts.engine.list_workflows(f"{_RUNNING} AND WorkflowType = '{task_names.LANE_WORKFLOW}'"):
        type_, _, number = run.id.removeprefix("tasks/").rpartition("/")
        pos = int(number)
        if type_ not in last:
            yield f"Lane {pos} of {type_}: its type is not in the database. Register it, and its tasks are found again."
        elif pos > last[type_] + 1:  # the next lane is started early
            await types.advance_type_to_lane_unless_past(parts.database, type_, pos)
            yield f"Lane {pos} of {type_}: the database did not know it, and does now."


async def _restart_lost_deliveries(parts: ClientsOfRestoredComponents) -> AsyncIterator[str]:
    """Attempt deliveries again whose workflow is gone."""
    for row in await restored.list_pending_deliveries(parts.database):
        if not await parts.is_running(build_delivery_workflow_id(row.project_id, row.delivery_id)):
            delivery = WebhookDeliveryInput(
                delivery_id=row.delivery_id,
                project_id=row.project_id,
                owner=WebhookEventSubject(system=row.owner_system, id=row.owner_id),
                url=SealedText(token=row.url),
                event=WebhookEvent.model_validate_json(row.body),
                redelivery=True,
            )
            await deliveries.redeliver(parts.engine, delivery, parts.task_timeout)
            yield f"Webhook {row.delivery_id}: its workflow was gone, and it is attempted again."


_Reconciler: TypeAlias = Callable[[ClientsOfRestoredComponents], AsyncIterator[str]]
BY_SYSTEM: Final[Mapping[System, _Reconciler | None]] = {
    "downloads": _restart_or_expire_downloads,
    "transfers": _end_targets_of_jobs_without_workflow,
    "orders": _create_and_remove_platform_schedules,
    "addresses": None,  # workers start its workflows when they start themselves
    "tasks": _start_missing_lanes_and_open_unknown,
}
"""What brings each system together with a restored database; None where nothing is to be done."""
