# ruff: noqa: PLC0415 - a command loads only what it needs
"""Acting on tasks and their types, and on slices of orders: commands of `haulage tasks` and `haulage orders`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli import command
from cli.command import (
    Api,
    ApiAddress,
    AsJson,
    CommandFault,
    CommandOutput,
    DataDir,
    DryRun,
    Reason,
    Who,
)
from cli.orders import Number, run_as_admin
from cli.orders import app as order_app
from cli.progress import ProgressDisplay
from cli.tasks import TasksRefused, TypeName, app, require_known_status, run_with_client, strip_fail_reason_prefix

if TYPE_CHECKING:
    from haulage.orders import Orders, OrderSlice, SliceChoice, SlicesActionResult
    from haulage.tasks import Task, TaskEntryOutcome, Tasks

__all__ = ["app", "order_app"]
"""The applications of `haulage tasks` and `haulage orders`, with these commands."""

POLL_SECONDS = 0.5
SLICE_ID_TIME = "%Y%m%dT%H%M%SZ"
"""The form of the two times in the id of a slice."""

ChosenIds = Annotated[list[str] | None, typer.Argument(help="Ids of tasks; or give --type and conditions.")]
OfType = Annotated[str | None, typer.Option("--type", help="Tasks of this type, instead of ids.")]
InStatus = Annotated[str | None, typer.Option("--status", help="Of the type: pending, running, failed and so on.")]
OfUser = Annotated[str | None, typer.Option("--user", help="Of the type: those of this user.")]

Slices = Annotated[list[str] | None, typer.Argument(help="Ids of slices; by default the failed set.")]
Cause = Annotated[str | None, typer.Option(help="Of the failed set, only slices that failed with this code.")]
OptionalReason = Annotated[str | None, typer.Option("--reason", help="Why, for the audit log.")]


@app.command()
def cancel(
    task_ids: ChosenIds = None,
    task_type: OfType = None,
    status: InStatus = None,
    user: OfUser = None,
    dry_run: DryRun = False,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Cancel tasks, also those that a worker holds: by id, or up to 2,000 of a type in each state that match."""

    async def cancel_by_ids(tasks: Tasks, ids: list[str]) -> list[TaskEntryOutcome]:
        return await tasks.cancel_many(ids)

    open_only = {"pending", "running"}
    _apply_action_to_chosen_tasks(
        cancel_by_ids, "cancelled", open_only, (task_ids, task_type, status, user), dry_run, api, data_dir, as_json
    )


@app.command(name="put-back")
def put_back(
    task_ids: ChosenIds = None,
    task_type: OfType = None,
    status: InStatus = None,
    user: OfUser = None,
    dry_run: DryRun = False,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Put tasks back into their queue: held ones are taken from their worker, ended ones are created again."""

    async def put_back_by_ids(tasks: Tasks, ids: list[str]) -> list[TaskEntryOutcome]:
        return await tasks.put_back_many(ids)

    not_waiting = {"running", "success", "failed", "cancelled"}
    _apply_action_to_chosen_tasks(
        put_back_by_ids, "put back", not_waiting, (task_ids, task_type, status, user), dry_run, api, data_dir, as_json
    )


@app.command()
def remove(
    task_type: TypeName,
    reason: Reason,
    who: Who = "",
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Remove a type without unfinished tasks; ended ones are seen again if it is registered again."""

    async def remove_type_and_describe(tasks: Tasks, _: ProgressDisplay) -> CommandOutput:
        await tasks.remove(task_type, who=who or command.get_user_name(), reason=reason)
        return CommandOutput({"task_type": task_type, "removed": True}, (f"{task_type}: removed",))

    run_with_client(remove_type_and_describe, api, data_dir, as_json)


@app.command()
def pause(
    task_type: TypeName,
    reason: Reason,
    who: Who = "",
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Pause a type: its tasks wait, and none is given to a worker."""

    async def pause_type_and_describe(tasks: Tasks, _: ProgressDisplay) -> CommandOutput:
        await tasks.pause(task_type, who=who or command.get_user_name(), reason=reason)
        return CommandOutput({"task_type": task_type, "paused": True}, (f"{task_type}: paused",))

    run_with_client(pause_type_and_describe, api, data_dir, as_json)


@app.command()
def resume(
    task_type: TypeName,
    reason: Reason,
    who: Who = "",
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Resume a paused type."""

    async def resume_type_and_describe(tasks: Tasks, _: ProgressDisplay) -> CommandOutput:
        await tasks.resume(task_type, who=who or command.get_user_name(), reason=reason)
        return CommandOutput({"task_type": task_type, "paused": False}, (f"{task_type}: resumed",))

    run_with_client(resume_type_and_describe, api, data_dir, as_json)


Chosen = tuple[list[str] | None, str | None, str | None, str | None]
"""Ids; or a type, a status and a user."""


def _apply_action_to_chosen_tasks(
    apply_action: Callable[[Tasks, list[str]], Awaitable[list[TaskEntryOutcome]]],
    past_participle: str,
    allowed_states: set[str],
    chosen: Chosen,
    dry_run: bool,
    api: str | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Apply an action to tasks in an allowed state."""
    task_ids, task_type, status, user = chosen

    def require_ids_or_filter() -> None:
        if bool(task_ids) == (task_type is not None):
            raise CommandFault("Name tasks by their ids, or choose them by --type, --status and --user.")
        require_known_status(status)

    async def apply_or_describe_dry_run(tasks: Tasks, _: ProgressDisplay) -> CommandOutput:
        from haulage.tasks import Status

        if task_ids:
            found: list[Task] = [await tasks.get(task_id) for task_id in task_ids]
        else:
            # Each state by itself: among the newest of all there may be none that the action is for.
            states = [each for each in Status if each.name.lower() in ({status.lower()} if status else allowed_states)]
            lists = [await tasks.find(task_type=task_type, status=each, user_id=user) for each in states]
            found = list({each.task_id: each for listed in lists for each in listed}.values())
        ids = [each.task_id for each in found if each.status.name.lower() in allowed_states]
        if dry_run:
            line = f"{len(ids):,} of {len(found):,} would be {past_participle}."
            return CommandOutput({"dry_run": True, "task_ids": ids}, (*ids, line))
        outcomes = await apply_action(tasks, ids)
        good = [task_id for task_id, outcome in zip(ids, outcomes, strict=True) if outcome.good]
        if refused := [outcome.msg for outcome in outcomes if not outcome.good]:
            sentence = f"{len(refused):,} of {len(ids):,} tasks were refused: {strip_fail_reason_prefix(refused[0])}"
            raise TasksRefused(sentence, {"task_ids": good, "refused": len(refused)})
        lines = tuple(f"{task_id}: {past_participle}" for task_id in good)
        return CommandOutput(
            {"task_ids": good}, lines or (_explain_unchanged_tasks(found, allowed_states, past_participle),)
        )

    run_with_client(apply_or_describe_dry_run, api, data_dir, as_json, require_ids_or_filter)


def _explain_unchanged_tasks(found: Sequence[Task], allowed_states: set[str], past_participle: str) -> str:
    """Return a sentence that says why no task was changed."""
    if not found:
        return f"None was {past_participle}: no task matches."
    states = {each.status.name.lower() for each in found}
    named = f"{found[0].task_id} is {found[0].status.name.lower()}" if len(found) == 1 else ", ".join(sorted(states))
    return f"None was {past_participle}: only a task that is {' or '.join(sorted(allowed_states))} can be ({named})."


@order_app.command()
def redo(
    platform: Number,
    slices: Slices = None,
    cause: Cause = None,
    reason: OptionalReason = None,
    who: Who = "",
    dry_run: DryRun = False,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Read slices again: those named, or the failed set; wait until that is done."""
    choice = _build_slice_choice_or_all(slices, cause, who, reason, dry_run)
    requested: list[OrderSlice] = []

    async def redo_and_remember(orders: Orders, part: SliceChoice) -> SlicesActionResult:
        before = await _load_slices_to_redo(orders, platform, part)
        changed = await orders.redo(platform, part)
        # One that is not in it has failed since.
        requested.extend(before[name] for name in changed.done if name in before)
        return changed

    async def wait_for_all(orders: Orders, progress: ProgressDisplay) -> None:
        if not dry_run:
            await _wait_for_rereads(orders, platform, requested, progress)

    _run_slice_action(
        redo_and_remember, choice, "read again", dry_run, api, data_dir, as_json=as_json, finish=wait_for_all
    )


@order_app.command()
def split(
    platform: Number,
    slices: Slices = None,
    cause: Cause = None,
    reason: OptionalReason = None,
    who: Who = "",
    dry_run: DryRun = False,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Split failed slices into halves, which are read next."""
    choice = _build_slice_choice_or_all(slices, cause, who, reason, dry_run)
    _run_slice_action(
        lambda orders, part: orders.split(platform, part), choice, "split", dry_run, api, data_dir, as_json=as_json
    )


@order_app.command()
def skip(
    platform: Number,
    reason: Annotated[str, typer.Option(help="Why; the ledger keeps it.")],
    slices: Slices = None,
    cause: Cause = None,
    who: Who = "",
    dry_run: DryRun = False,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Give failed slices up: orders of their time may be missing for ever."""
    choice = _build_slice_choice_or_all(slices, cause, who, None, dry_run)
    _run_slice_action(
        lambda orders, part: orders.skip(platform, part, reason),
        *(choice, "skipped", dry_run, api, data_dir),
        as_json=as_json,
    )


def _run_slice_action(
    act: Callable[[Orders, SliceChoice], Awaitable[SlicesActionResult]],
    choice: SliceChoice,
    done_word: str,
    dry_run: bool,
    api: str | None,
    data_dir: Path | None,
    *,
    as_json: bool,
    finish: Callable[[Orders, ProgressDisplay], Awaitable[None]] | None = None,
) -> None:
    async def change_slices_and_describe(orders: Orders, _: ApiAddress, progress: ProgressDisplay) -> CommandOutput:
        changed = await act(orders, choice)
        done, unchanged, next_start = [*changed.done], [*changed.unchanged], changed.next_start
        while next_start is not None:  # the API changes some hundreds at a time
            more = await act(orders, choice.model_copy(update={"start": next_start}))
            done, unchanged, next_start = [*done, *more.done], [*unchanged, *more.unchanged], more.next_start
        if finish is not None:  # not after each part: a fault of the first would leave out those that follow
            await finish(orders, progress)
        changed = changed.model_copy(update={"done": done, "unchanged": unchanged, "next_start": None})
        lines = [f"{name}: {'would be ' if dry_run else ''}{done_word}" for name in changed.done]
        reasons = tuple(f"{each.slice} is unchanged: {each.detail}" for each in unchanged)
        return CommandOutput(changed.model_dump(mode="json"), tuple(lines or [f"No slice was {done_word}."]), reasons)

    run_as_admin(change_slices_and_describe, api, data_dir, as_json=as_json)


async def _load_slices_to_redo(orders: Orders, platform: str, choice: SliceChoice) -> dict[str, OrderSlice]:
    """Load slices as they are before they are read again: the failed set, or those around the named ones."""
    from haulage.orders import SliceState

    if choice.slices is None:
        return {each.slice: each async for each in orders.list_slices(platform, state=SliceState.FAILED)}
    start, end = _find_bounds_of_slices_unless_invalid(choice.slices)
    return {each.slice: each async for each in orders.list_slices(platform, start=start, end=end)}


def _find_bounds_of_slices_unless_invalid(names: Sequence[str]) -> tuple[datetime | None, datetime | None]:
    """Return the first start and the last end in ids of slices; none where one is no id, which the API says."""
    from datetime import UTC

    try:
        ends = [
            datetime.strptime(text, SLICE_ID_TIME).replace(tzinfo=UTC) for name in names for text in name.split(":")
        ]
    except ValueError:
        return None, None
    return min(ends), max(ends)


async def _wait_for_rereads(
    orders: Orders, platform: str, before: Sequence[OrderSlice], progress: ProgressDisplay
) -> None:
    """Wait until each slice has ended anew, and show how many have.

    Raises:
        WorkFailed: One of them failed again.
    """
    from haulage.errors import WorkFailed

    waiting = {each.slice: _get_end_and_reread_end(each) for each in before}
    total = len(waiting)
    while waiting:
        done = total - len(waiting)
        progress.show(platform, done, total, f"{done:,} of {total:,} slices read again")
        await asyncio.sleep(POLL_SECONDS)
        start, end = min(each.window.start for each in before), max(each.window.end for each in before)
        async for each in orders.list_slices(platform, start=start, end=end):
            # The last end counts, and not what is under way: a worker may begin later than this looks.
            if each.slice not in waiting or _get_end_and_reread_end(each) == waiting[each.slice]:
                continue
            del waiting[each.slice]
            fault = each.fault if each.reread is None else each.reread.fault
            if fault is not None:
                raise WorkFailed(f"{each.slice} failed again: {fault.sentence}", {"slice": each.slice})


def _get_end_and_reread_end(each: OrderSlice) -> tuple[datetime | None, datetime | None]:
    """Return when a slice ended last, and when its last reading again did."""
    return each.finished_at, each.reread.ended_at if each.reread else None


def _build_slice_choice_or_all(
    slices: list[str] | None, cause: str | None, who: str, reason: str | None, dry_run: bool
) -> SliceChoice:
    from haulage.orders import SliceChoice

    choice = SliceChoice(slices=slices) if slices else SliceChoice(cause=cause, all=cause is None)
    signature = {"who": who or command.get_user_name(), "reason": reason}
    return choice.model_copy(update={**signature, "dry_run": dry_run})
