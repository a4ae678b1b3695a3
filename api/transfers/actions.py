"""Actions: create transfers, cancel a task or a job, retry failed targets, and open what a project may send.

The operator sets the permissions of a project; the project reads them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from http import HTTPStatus

from api.http.auth import build_missing_to_caller_fault
from api.http.problems import RequestRejected
from api.http.routes import Call, RouteAccess
from api.pauses import SYSTEM_PAUSED
from api.projects import ProjectPath
from api.transfers.context import TransferContext, build_missing_job_fault, get_transfer_context, is_expired, routes
from api.transfers.joins import NO_WORKERS, WINDOW_FULL
from api.transfers.queries import EXPIRED, build_expired_fault, build_task_response, read_job, read_task_target
from api.transfers.quotas import (
    OPEN_TRANSFERS,
    SAVE_SECONDS,
    TOO_MANY_TARGETS,
    count_targets_within_quotas,
    release_daily_targets,
    uncount_targets_that_no_job_took,
)
from api.transfers.requests import (
    CreateTransfersRequest,
    JobTargetsQuery,
    RetryTransferJobRequest,
    SetTransferPermissionsRequest,
    SingleTargetTransferRequest,
    TransferFileRequest,
    TransferJobPath,
    TransferTaskPath,
)
from api.transfers.responses import (
    CreatedTransferTask,
    CreateTransferResponse,
    CreateTransfersResponse,
    RetryTransferJobResponse,
    TransferJobResponse,
    TransferPermissionResponse,
    TransferPermissionsResponse,
    TransferTaskResponse,
)
from domain.faults import Conflict, Forbidden, Gone, Invalid, Missing, Paused, QuotaExhausted
from domain.transfers import names
from domain.transfers import permissions as rules
from domain.transfers.joining import FailedTargetsRetry, TargetsWithSameSpec
from domain.transfers.models import JOB_ID_MAX_BYTES, FailureReason, FileByBizAppAndPath, TransferSpec
from domain.transfers.names import TransferJobKey
from domain.transfers.permissions import NOT_PERMITTED, TransferPermission
from infra import log
from infra.database import Database, Session
from infra.outages import EngineUnresponsive
from stores import projects
from stores.transfers import jobs, permissions, targets

NOTHING_FAILED = "nothing_failed"
SHARED_BY_REQUESTS_MAX = 1_000
"""Files and specs that are remembered: many requests name the same ones, and dicts find them without comparing."""
RETRIES_MAX = 100
"""The retries of one window's job, including retries of retries."""
EARLIER_RETRY_SECONDS, EARLIER_RETRY_POLL_SECONDS = 5.0, 0.1
"""How long an earlier retry may take to be saved."""

_CANCEL_PROBLEMS = {"not_found": Missing, EXPIRED: Gone}

TOO_LONG = "file_path_too_long"
_SEND_PROBLEMS = {TOO_MANY_TARGETS: Invalid, NOT_PERMITTED: Forbidden, SYSTEM_PAUSED: Paused, NO_WORKERS: Paused}
_CREATE_PROBLEMS = {TOO_LONG: Invalid, WINDOW_FULL: QuotaExhausted, **_SEND_PROBLEMS}

TAKEN = "transfer_permission_taken"


@routes.post(
    "/v1/transfers",
    access=RouteAccess.PROJECT,
    is_audited=False,
    begins_work=True,
    status=HTTPStatus.ACCEPTED,
    problems=_CREATE_PROBLEMS,
)
async def create_transfer(call: Call, body: SingleTargetTransferRequest) -> CreateTransferResponse:
    """Bring a file to a target.

    Requests for one file that come within one window (15 seconds by default) form a job, which begins when the window
    ends. Once answered, the request is carried out whatever fails; `GET /v1/transfers/{task_id}` shows its state. A
    target that is requested twice in one window gets the file once, and both tasks show it.
    """
    job_id, (task_id,) = await _require_permission_and_join_job(
        call, body, [(body.target_agent_id, body.target_container_id)]
    )
    return CreateTransferResponse(task_id=task_id, job_id=job_id)


@routes.post(
    "/v1/transfers:batch",
    access=RouteAccess.PROJECT,
    is_audited=False,
    begins_work=True,
    status=HTTPStatus.ACCEPTED,
    problems=_CREATE_PROBLEMS,
)
async def create_transfers(call: Call, body: CreateTransfersRequest) -> CreateTransfersResponse:
    """Bring a file to many targets.

    The same as a single request for each target, and all join one job. Each target has a task of its own, in the order
    of the request.
    """
    targets = [(target.target_agent_id, target.target_container_id) for target in body.targets]
    job_id, task_ids = await _require_permission_and_join_job(call, body, targets)
    return CreateTransfersResponse(
        job_id=job_id,
        tasks=[
            CreatedTransferTask(task_id=task_id, target_agent_id=agent_id, target_container_id=container_id)
            for task_id, (agent_id, container_id) in zip(task_ids, targets, strict=True)
        ],
    )


@routes.post(
    "/v1/transfers/jobs/{job_id}/cancel",
    access=RouteAccess.PROJECT,
    slashes="job_id",
    status=HTTPStatus.ACCEPTED,
    problems=_CANCEL_PROBLEMS,
)
async def cancel_job(call: Call, path: TransferJobPath) -> TransferJobResponse:
    """Cancel a job.

    All targets of your project that have not ended become Failed with the reason `cancelled`, in a moment or when the
    window ends; until then they and the job are `cancelling`. Later requests for the file join the next job.
    """
    response = await read_job(call, path, JobTargetsQuery())
    if response.status.is_final or response.cancelling:
        return response  # each signal is in the job's history, which has a limit
    # In this order: targets that join after the exclusion are not cancelled with those before.
    await get_transfer_context(call).lookup.refuse_further_targets(path.job_id, call.project_id)
    await targets.save_cancellation(call.services.database, path.job_id, [call.project_id])
    return await read_job(call, path, JobTargetsQuery())


@routes.post(
    "/v1/transfers/{task_id}/cancel",
    access=RouteAccess.PROJECT,
    slashes="task_id",
    status=HTTPStatus.ACCEPTED,
    problems=_CANCEL_PROBLEMS,
)
async def cancel_task(call: Call, path: TransferTaskPath) -> TransferTaskResponse:
    """Cancel a task.

    Its target becomes Failed with the reason `cancelled`, in a moment or when the window ends, and so do other tasks of
    the same target in the same job. A task that has ended stays as it is.
    """
    task = get_transfer_context(call).parse_task_id(call, path.task_id)
    target = await read_task_target(call, task)
    if not target.status.is_final:
        await targets.save_cancellation(call.services.database, str(task.job), [call.project_id], task.target_key)
        target = target.model_copy(update={"cancelling": True})
    return build_task_response(call, path.task_id, task.job, target)


@routes.post(
    "/v1/transfers/jobs/{job_id}/retry",
    access=RouteAccess.PROJECT,
    begins_work=True,
    slashes="job_id",
    status=HTTPStatus.ACCEPTED,
    body_optional=True,
    problems=_CANCEL_PROBLEMS | _SEND_PROBLEMS | {NOTHING_FAILED: Conflict},
)
async def retry_job(call: Call, path: TransferJobPath, body: RetryTransferJobRequest) -> RetryTransferJobResponse:
    """Send failed targets again.

    All targets of your project in this job that failed or timed out, or those of one reason, are sent again at once by
    a job of their own. Each is sent again by one job only: what fails there is retried there.
    """
    job = names.parse_job_id(path.job_id)
    if job is None:
        raise build_missing_job_fault()
    saved = await get_transfer_context(call).lookup.find_job(path.job_id, call.project_id)
    if saved is None:
        await read_job(call, path, JobTargetsQuery())  # raises if there is no such job
        raise Conflict(NOTHING_FAILED, f"{path.job_id} has not begun to send: nothing has failed.", "Ask again later.")
    if is_expired(saved.row.expires_at):
        raise build_expired_fault("job")
    count = await _count_failed_or_raise_if_none(call, path.job_id, saved.row.id, body.reason)
    await _require_permission_still_covers_failed_targets(call, job, saved.row.id, body.reason)
    retry = FailedTargetsRetry(job_id=path.job_id, project_id=call.project_id, reason=body.reason, targets=count)
    # Under a number of its own: the number that it gets is known only when it has begun.
    admitted_id = str(replace(job, retry=RETRIES_MAX + 1))
    await count_targets_within_quotas(call, admitted_id, count, time.time() + EARLIER_RETRY_SECONDS)
    try:
        response = await _start_retry_under_free_number(call, job, saved.row.id, retry)
    except (Conflict, EngineUnresponsive):
        uncount_targets_that_no_job_took(call, admitted_id, count)
        raise
    call.request.app[OPEN_TRANSFERS].move_targets_to_joined_job(
        call.project_id, admitted_id, response.job_id, count, time.time() + EARLIER_RETRY_SECONDS
    )
    return response


async def _require_permission_and_join_job(
    call: Call, body: TransferFileRequest, targets: Sequence[tuple[str, str]]
) -> tuple[str, list[str]]:
    """Join targets to a job; return the id of the job, and of each target's task, once that is durable."""
    file = _build_file_with_short_job_id(body.biz_id, body.app_id, body.full_path)
    spec = _build_spec(call.project_id, body.signature, body.target_user, body.target_file_dir)
    context = get_transfer_context(call)
    agent_ids = [agent_id for agent_id, _ in targets]
    await context.permissions.require_permission(call.project_id, file, spec.user, spec.folder, agent_ids)
    keyed = [(names.compute_target_key(spec, *target), *target) for target in targets]
    group = TargetsWithSameSpec(spec=spec, file_name=body.file_name, targets=keyed)
    job_id, window_number = await _join_in_quota_and_get_window(call, file, group)
    job = TransferJobKey(file, window_number)
    return job_id, [context.create_task_id(job, key, call.project_id) for key, _, _ in keyed]


async def _join_in_quota_and_get_window(
    call: Call, file: FileByBizAppAndPath, group: TargetsWithSameSpec
) -> tuple[str, int]:
    """Join targets within the project's quotas; return the id of the job, and the number of its window."""
    context, targets = get_transfer_context(call), len(group.targets)

    def build_job_id_and_save_time(window_number: int) -> tuple[str, float]:
        until = names.compute_window_end(window_number, context.window_seconds) + SAVE_SECONDS
        return str(TransferJobKey(file, window_number)), until

    current = names.compute_window_number(time.time(), context.window_seconds)
    admitted_id, until = build_job_id_and_save_time(current)
    await count_targets_within_quotas(call, admitted_id, targets, until)
    try:
        window_number = await context.joiner.join_job(file, group)
    except (QuotaExhausted, RequestRejected):
        uncount_targets_that_no_job_took(call, admitted_id, targets)
        raise
    except EngineUnresponsive:
        # They may have joined, and count as open until the window is over. Callers repeat the request: all that they
        # ask for during an outage would use up their day.
        release_daily_targets(call, targets)
        raise
    if window_number == current:
        return admitted_id, window_number
    job_id, until = build_job_id_and_save_time(window_number)
    call.request.app[OPEN_TRANSFERS].move_targets_to_joined_job(call.project_id, admitted_id, job_id, targets, until)
    return job_id, window_number


@lru_cache(SHARED_BY_REQUESTS_MAX)
def _build_spec(project_id: str, signature: str, user: str, folder: str) -> TransferSpec:
    return TransferSpec(project_id=project_id, signature=signature, user=user, folder=folder)


@lru_cache(SHARED_BY_REQUESTS_MAX)
def _build_file_with_short_job_id(biz_id: int, app_id: int, path: str) -> FileByBizAppAndPath:
    file = FileByBizAppAndPath(biz_id=biz_id, app_id=app_id, path=path)
    length = len(str(TransferJobKey(file, 2**names.WINDOW_NUMBER_BITS - 1)).encode())
    if length > JOB_ID_MAX_BYTES:
        raise Invalid(
            TOO_LONG,
            f"With this file_path the job's id has {length} bytes; {JOB_ID_MAX_BYTES} are allowed.",
            "Use a shorter path.",
        )
    return file


async def _start_retry_under_free_number(
    call: Call, job: TransferJobKey, row_id: int, retry: FailedTargetsRetry
) -> RetryTransferJobResponse:
    """Start a job under the first free retry number."""
    context, database = get_transfer_context(call), call.services.database
    until = time.monotonic() + EARLIER_RETRY_SECONDS
    retry_jobs = [replace(job, retry=number) for number in range(1, RETRIES_MAX + 1)]
    # Also what the engine may have forgotten, which keeps ids for some days only.
    saved = await jobs.filter_saved_job_ids(database, [str(each) for each in retry_jobs])
    # Those that were saved just now may have taken the targets.
    await _count_failed_or_raise_if_none(call, retry.job_id, row_id, retry.reason)
    for retry_job in retry_jobs:
        if str(retry_job) in saved:
            continue
        if await context.joiner.start_retry(retry_job, retry):
            return RetryTransferJobResponse(job_id=str(retry_job), retry_of=retry.job_id, targets=retry.targets)
        await _wait_until_earlier_retry_has_its_targets(context, database, str(retry_job), until)
        await _count_failed_or_raise_if_none(call, retry.job_id, row_id, retry.reason)
    raise Conflict(NOTHING_FAILED, f"{retry.job_id} was retried {RETRIES_MAX} times.", "Ask for the file anew.")


async def _wait_until_earlier_retry_has_its_targets(
    context: TransferContext, database: Database, job_id: str, until: float
) -> None:
    """Wait until a retry, which may be of another project, has saved its targets, or has ended without.

    Raises:
        EngineUnresponsive: It does neither in time: a further retry might be left without targets.
    """
    while not await jobs.filter_saved_job_ids(database, [job_id]) and await context.lookup.is_running(job_id):
        if time.monotonic() >= until:
            raise EngineUnresponsive(f"{job_id} has not saved its targets in {EARLIER_RETRY_SECONDS:g} s.")
        await asyncio.sleep(EARLIER_RETRY_POLL_SECONDS)


async def _count_failed_or_raise_if_none(call: Call, job_id: str, row_id: int, reason: FailureReason | None) -> int:
    """Count the failed targets that no retry has.

    Raises:
        Conflict: There are none.
    """
    count = await targets.count_failed_without_retry(call.services.database, row_id, call.project_id, reason)
    if not count:
        raise Conflict(
            NOTHING_FAILED,
            f"No target of {job_id} has failed{f' for the reason {reason}' if reason else ''}, or "
            "another job sends them again already.",
            "See `counts`, `failures_by_reason` and `retries` of the job.",
        )
    return count


async def _require_permission_still_covers_failed_targets(
    call: Call, job: TransferJobKey, row_id: int, reason: FailureReason | None
) -> None:
    """Check the failed targets against today's permissions, which may have changed since they were sent."""
    permissions = get_transfer_context(call).permissions
    if await permissions.get_permissions_or_none_if_unrestricted(call.project_id) is None:
        return
    for each in await targets.list_failed_hosts_without_retry(call.services.database, row_id, call.project_id, reason):
        await permissions.require_permission(call.project_id, job.file, each.target_user, each.folder, each.agent_ids)


@routes.get("/v1/projects/{project_id}/transfer-permissions", access=RouteAccess.OWNER)
async def list_permissions(call: Call, path: ProjectPath) -> TransferPermissionsResponse:
    """Read what a project may send.

    A file is sent to a target if one permission allows biz and app, the file's path, the folder, the user and the host.
    """
    async with call.services.database.session() as session:
        await _require_project(session, path.project_id)
    permitted = await get_transfer_context(call).permissions.load_permissions_or_none_if_unrestricted(path.project_id)
    return _build_permissions_response(path.project_id, permitted or [], is_restricted=permitted is not None)


@routes.put("/v1/projects/{project_id}/transfer-permissions", access=RouteAccess.ADMIN, problems={TAKEN: Conflict})
async def replace_permissions(
    call: Call, path: ProjectPath, body: SetTransferPermissionsRequest
) -> TransferPermissionsResponse:
    """Set which transfers a project may send.

    The list replaces the previous one. Once any project has a permission, each sends only what is permitted to it.
    A change takes effect within a second, for transfers that are requested and retries that begin from then on. A biz
    and app permitted to one project are bound to it: to permit them to another is a conflict. An empty list removes all
    permissions.
    """
    new = [TransferPermission.model_validate(each.model_dump()) for each in body.items]
    async with call.services.database.session() as session:
        await permissions.lock_permissions_until_commit(session)
        await _require_project(session, path.project_id)
        others = await permissions.list_permissions_of_other_projects(
            session, path.project_id, {each.biz_id for each in new}
        )
        _require_no_overlap_with_other_projects(new, others)
        await permissions.replace_permissions(session, path.project_id, new)
        is_restricted = await permissions.has_any_permission(session)
    get_transfer_context(call).permissions.invalidate()
    log.get(__name__).info("transfer_permissions_set", project_id=path.project_id, permissions=len(new))
    return _build_permissions_response(path.project_id, new, is_restricted=is_restricted)


async def _require_project(session: Session, project_id: str) -> None:
    if await projects.find_project(session, project_id) is None:
        raise build_missing_to_caller_fault()


def _require_no_overlap_with_other_projects(
    new: Sequence[TransferPermission], others: Sequence[tuple[str, TransferPermission]]
) -> None:
    if conflict := rules.find_overlap_with_other_project(new, others):
        permission, owner, other = conflict
        raise Conflict(
            TAKEN,
            f"{permission.pair} cannot be permitted here: {other.pair} is bound to the project {owner}.",
            f"Take it back there first, by PUT /v1/projects/{owner}/transfer-permissions without it.",
        )


def _build_permissions_response(
    project_id: str, permitted: Sequence[TransferPermission], *, is_restricted: bool
) -> TransferPermissionsResponse:
    return TransferPermissionsResponse(
        project_id=project_id,
        is_restricted=is_restricted,
        items=[TransferPermissionResponse.model_validate(each.model_dump()) for each in permitted],
    )
