"""Create transfers: check the request, join the job of the window, and answer once that is durable."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from api.http.routes import Access, Call
from api.transfers.context import get_context, routes
from api.transfers.joins import WINDOW_FULL
from api.transfers.requests import CreateTransferRequest, CreateTransfersRequest, TransferFileRequest
from api.transfers.responses import CreatedTransferTask, CreateTransferResponse, CreateTransfersResponse
from domain.faults import Exhausted, Forbidden, Invalid
from domain.transfers import names
from domain.transfers.joining import TargetGroup
from domain.transfers.models import JOB_ID_MAX_BYTES, TransferFile, TransferSpec
from domain.transfers.names import TransferJobKey
from domain.transfers.openings import NOT_OPENED

TOO_LONG = "file_path_too_long"
_PROBLEMS = {TOO_LONG: Invalid, WINDOW_FULL: Exhausted, NOT_OPENED: Forbidden}


@routes.post("/v1/transfers", access=Access.PROJECT, status=HTTPStatus.ACCEPTED, problems=_PROBLEMS)
async def create_transfer(call: Call, body: CreateTransferRequest) -> CreateTransferResponse:
    """Bring a file to a target.

    Requests for one file that come within one window (15 seconds by default) form a job, which begins when the window
    ends. Once answered, the request is carried out whatever fails; `GET /v1/transfers/{task_id}` shows its state. A
    target that is requested twice in one window gets the file once, and both tasks show it.
    """
    job_id, (task_id,) = await _join(call, body, [(body.target_agent_id, body.target_container_id)])
    return CreateTransferResponse(task_id=task_id, job_id=job_id)


@routes.post("/v1/transfers:batch", access=Access.PROJECT, status=HTTPStatus.ACCEPTED, problems=_PROBLEMS)
async def create_transfers(call: Call, body: CreateTransfersRequest) -> CreateTransfersResponse:
    """Bring a file to many targets.

    The same as a single request for each target, and all join one job. Each target has a task of its own, in the order
    of the request.
    """
    targets = [(target.target_agent_id, target.target_container_id) for target in body.targets]
    job_id, task_ids = await _join(call, body, targets)
    return CreateTransfersResponse(
        job_id=job_id,
        tasks=[
            CreatedTransferTask(task_id=task_id, target_agent_id=agent_id, target_container_id=container_id)
            for task_id, (agent_id, container_id) in zip(task_ids, targets, strict=True)
        ],
    )


async def _join(call: Call, body: TransferFileRequest, targets: Sequence[tuple[str, str]]) -> tuple[str, list[str]]:
    """Join targets to a job; return the id of the job, and of each target's task, once that is durable."""
    file = TransferFile(biz_id=body.biz_id, app_id=body.app_id, path=body.full_path)
    _check_length(file)
    spec = TransferSpec(
        project_id=call.project_id, signature=body.signature, user=body.target_user, folder=body.target_file_dir
    )
    context = get_context(call)
    agent_ids = [agent_id for agent_id, _ in targets]
    await context.openings.check(call.project_id, file, spec.user, spec.folder, agent_ids)
    keyed = [(names.compute_target_key(spec, *target), *target) for target in targets]
    group = TargetGroup(spec=spec, file_name=body.file_name, targets=keyed)
    bucket = await context.joiner.join(file, group)
    return str(TransferJobKey(file, bucket)), [
        context.create_task_id(file, bucket, key, call.project_id) for key, _, _ in keyed
    ]


def _check_length(file: TransferFile) -> None:
    length = len(str(TransferJobKey(file, 2**names.BUCKET_BITS - 1)).encode())
    if length > JOB_ID_MAX_BYTES:
        raise Invalid(
            TOO_LONG,
            f"With this file_path the job's id has {length} bytes; {JOB_ID_MAX_BYTES} are allowed.",
            "Use a shorter path.",
        )
