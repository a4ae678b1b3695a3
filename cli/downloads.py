# ruff: noqa: PLC0415 - a command loads only what it needs
"""`haulage downloads`: list downloads, and cancel, retry or delete one, several or all that match."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli import command
from cli.command import Api, ApiAddress, AsJson, CommandFault, CommandOutput, DataDir, DryRun
from cli.progress import ProgressDisplay
from haulage.errors import RequestRefused, WorkFailed

if TYPE_CHECKING:
    from haulage import Client, Download

app = typer.Typer(no_args_is_help=True, help="List, cancel, retry and delete downloads.")

NAMED_DOWNLOADS = 3
"""How many of those that are left as they are a sentence names."""

TaskIds = Annotated[list[str] | None, typer.Argument(help="Ids of downloads; or give conditions.")]
State = Annotated[str | None, typer.Option(help="pending, running, succeeded, failed, cancelled or expired.")]
Cause = Annotated[str | None, typer.Option(help="Code of the fault, like source_status.")]
Operator = Annotated[str | None, typer.Option(help="Those of this operator_id.")]
Host = Annotated[str | None, typer.Option(help="Those with a source URL of this host, without its port.")]
After = Annotated[datetime | None, typer.Option(help="Created at or after this time, in UTC.")]
Before = Annotated[datetime | None, typer.Option(help="Created before this time, in UTC.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="How many at most, newest first.")]


@dataclass(frozen=True)
class DownloadSelection:
    """Downloads by id, or those that match all conditions."""

    task_ids: list[str] | None = None
    state: str | None = None
    cause: str | None = None
    operator: str | None = None
    host: str | None = None
    after: datetime | None = None
    before: datetime | None = None
    limit: int = 1_000
    allowed_states: tuple[str, ...] = ()
    """The states that the command is for: they narrow what is chosen, and are no condition."""

    def require_either_ids_or_conditions(self) -> None:
        """Raise CommandFault where it would choose everything."""
        conditions = (self.state, self.cause, self.operator, self.host, self.after, self.before)
        if bool(self.task_ids) == any(each is not None for each in conditions):
            raise CommandFault("Name downloads by their ids, or choose them by conditions, such as --host or --after.")

    async def load_chosen_downloads(self, client: Client) -> list[Download]:
        """Load the chosen downloads."""
        from haulage import State as DownloadState

        if self.task_ids:
            return [await client.read(task_id) for task_id in self.task_ids]
        found: dict[str, Download] = {}
        names = (self.state,) if self.state else self.allowed_states or (None,)
        for name in names:
            async for each in client.list(
                state=None if name is None else DownloadState(name),
                cause=self.cause,
                operator_id=self.operator,
                source_host=self.host,
                created_after=_treat_naive_as_utc(self.after),
                created_before=_treat_naive_as_utc(self.before),
            ):
                found[each.task_id] = each  # one that has begun meanwhile is listed twice
                if len(found) == self.limit:
                    return list(found.values())
        return list(found.values())


@app.command("list")
def list_downloads(
    state: State = None,
    cause: Cause = None,
    operator: Operator = None,
    host: Host = None,
    after: After = None,
    before: Before = None,
    limit: Limit = 50,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List downloads, newest first, each failed one with its cause, each that waits with what it tries again."""
    choice = DownloadSelection(None, state, cause, operator, host, after, before, limit)

    async def list_and_describe_downloads(client: Client) -> CommandOutput:
        from haulage import State as DownloadState

        found = [
            await client.read(each.task_id) if each.state is DownloadState.RUNNING else each
            for each in await choice.load_chosen_downloads(client)
        ]
        fields = {"downloads": [each.model_dump(mode="json") for each in found]}
        return CommandOutput(fields, tuple(map(describe_download_in_line, found)) or ("No download matches.",))

    _run_with_client(
        list_and_describe_downloads, api, data_dir, as_json=as_json, check=lambda: _require_known_state(state)
    )


@app.command()
def cancel(
    task_ids: TaskIds = None,
    state: State = None,
    operator: Operator = None,
    host: Host = None,
    after: After = None,
    before: Before = None,
    limit: Limit = 1_000,
    dry_run: DryRun = False,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Cancel downloads and remove their data; those that have ended are left."""
    states = ("pending", "running")
    choice = DownloadSelection(task_ids, state, None, operator, host, after, before, limit, states)
    _apply_action_to_chosen_downloads(choice, "cancelled", "cancel", dry_run, api, data_dir, as_json)


@app.command()
def retry(
    task_ids: TaskIds = None,
    cause: Cause = None,
    operator: Operator = None,
    host: Host = None,
    after: After = None,
    before: Before = None,
    limit: Limit = 1_000,
    dry_run: DryRun = False,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Retry failed downloads, each under its id: those named, or the failed ones that match conditions."""
    choice = DownloadSelection(task_ids, None, cause, operator, host, after, before, limit, ("failed",))
    _apply_action_to_chosen_downloads(choice, "retried", "retry", dry_run, api, data_dir, as_json)


@app.command()
def delete(
    task_ids: TaskIds = None,
    operator: Operator = None,
    host: Host = None,
    after: After = None,
    before: Before = None,
    limit: Limit = 1_000,
    dry_run: DryRun = False,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Delete the files of downloads that have succeeded, before they expire: those named, or that match conditions."""
    choice = DownloadSelection(task_ids, None, None, operator, host, after, before, limit, ("succeeded",))
    _apply_action_to_chosen_downloads(choice, "deleted", "delete", dry_run, api, data_dir, as_json)


def describe_download_in_line(download: Download) -> str:
    """Describe a download in a line."""
    trouble = "" if download.trouble is None else f": {download.trouble.code}, {download.trouble}"
    fault = trouble if download.fault is None else f": {download.fault.code}, {download.fault.sentence}"
    return f"{download.task_id} {download.state} {download.file_name}{fault}"


def _apply_action_to_chosen_downloads(
    choice: DownloadSelection,
    past_participle: str,
    client_method: str,
    dry_run: bool,
    api: str | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Apply a method of the client to each chosen download whose state allows it."""

    async def apply_or_describe_dry_run(client: Client) -> CommandOutput:
        chosen = await choice.load_chosen_downloads(client)
        allowed = [each for each in chosen if each.state in choice.allowed_states]
        left = [each for each in chosen if each.state not in choice.allowed_states]
        reason = _explain_left_downloads(left, choice.allowed_states, past_participle) if left else ""
        if dry_run:
            fields = {"dry_run": True, "task_ids": [each.task_id for each in allowed]}
            line = f"{len(allowed):,} of {len(chosen):,} would be {past_participle}.{reason}"
            return CommandOutput(fields, (*map(describe_download_in_line, allowed), line))
        changed, refused = list[str](), list[str]()
        for each in allowed:
            try:
                await getattr(client, client_method)(each.task_id)
            except RequestRefused as refusal:
                refused.append(f"{each.task_id}: {refusal}")
            else:
                changed.append(each.task_id)
        sentence = f"{len(changed):,} of {len(chosen):,} downloads were {past_participle}.{reason}"
        if not choice.task_ids and len(chosen) == choice.limit:
            sentence += " There may be more, as --limit ends here: run it again."
        if refused:
            raise WorkFailed(f"{sentence} {refused[0]}", {"task_ids": changed, "refused": refused})
        return CommandOutput({"task_ids": changed, "left": len(left)}, (sentence,))

    def require_choice_and_known_state() -> None:
        choice.require_either_ids_or_conditions()
        _require_known_state(choice.state)

    _run_with_client(apply_or_describe_dry_run, api, data_dir, as_json=as_json, check=require_choice_and_known_state)


def _explain_left_downloads(left: Sequence[Download], allowed_states: Sequence[str], past_participle: str) -> str:
    """Return a sentence, after a space, about downloads in other states than the command is for."""
    named = [f"{each.task_id} is {each.state}" for each in left[:NAMED_DOWNLOADS]]
    more = [f"{len(left) - len(named):,} more are in another state, too"] if len(left) > len(named) else []
    return f" Only {' and '.join(allowed_states)} ones can be {past_participle}: {', '.join([*named, *more])}."


def _require_known_state(state: str | None) -> None:
    from haulage import State as DownloadState

    known = [each.value for each in DownloadState]
    if state is not None and state not in known:
        raise CommandFault(f"{state} is no state of a download. Choose from {', '.join(known)}.")


def _treat_naive_as_utc(moment: datetime | None) -> datetime | None:
    from datetime import UTC

    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)


def _run_with_client(
    work: Callable[[Client], Awaitable[CommandOutput]],
    api: str | None,
    data_dir: Path | None,
    *,
    as_json: bool,
    check: Callable[[], None] = command.do_nothing,
) -> None:
    from haulage import Client

    async def open_and_work(address: ApiAddress, _: ProgressDisplay) -> CommandOutput:
        async with Client(address.url, address.key) as client:
            return await work(client)

    command.run_at_terminal_and_exit(command.run_with_api(data_dir, api, open_and_work, as_json=as_json, check=check))
