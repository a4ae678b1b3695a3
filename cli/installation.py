# ruff: noqa: PLC0415 - a command loads only what it needs
"""Commands about an installation as a whole: its secrets, its backup, its restore, and pauses of its systems."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from cli import command, wording
from cli.command import Api, ApiAddress, AsJson, CommandOutput, DataDir, Reason, Who
from cli.progress import ProgressDisplay
from dev.embedded.environment import set_environment_of_running_installation
from dev.embedded.secrets import SECRET_NAMES
from haulage.transport import RetryingApiTransport, encode_path_step
from infra import log

systems_app = typer.Typer(no_args_is_help=True, help="Pause and resume whole systems.")

System = Annotated[str, typer.Argument(help="downloads, transfers, orders, addresses or tasks.")]
Folder = Annotated[Path, typer.Argument(help="Folder of the backup.")]
EngineDatabase = Annotated[
    list[str] | None,
    typer.Option(
        "--engine-database",
        help="Address of a database of Temporal on PostgreSQL, once for each; none for `haulage up`.",
    ),
]


def rotate(
    names: Annotated[list[str] | None, typer.Argument(help=f"All by default: {', '.join(SECRET_NAMES)}.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Draw the secrets of a stopped `haulage up` anew, in secrets.json of its data folder.

    Old ones that data need are kept beside them until `haulage reseal --remove-old`. Safe to repeat.
    """
    if unknown := set(names or []).difference(SECRET_NAMES):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))} is none of {', '.join(SECRET_NAMES)}.")
    from cli import secrets

    command.run_and_exit(secrets.rotate(command.load_settings_with_data_dir(data_dir).data_dir, names or []))


def reseal(
    data_dir: DataDir = None,
    remove_old: Annotated[
        bool, typer.Option("--remove-old", help="Remove from secrets.json of a running `haulage up` what may go.")
    ] = False,
) -> None:
    """Seal anew what an old key of HAULAGE_SECRETS__SEAL made, so that it can be removed; the server may run meanwhile.

    Safe to repeat. Exit codes: 0 old keys may go, 1 something still needs one, as the last lines say.
    """
    folder = command.load_settings_with_data_dir(data_dir).data_dir
    if not set_environment_of_running_installation(folder) and remove_old:
        raise typer.BadParameter(f"--remove-old needs a `haulage up` that runs in {folder}, and no other settings.")
    from cli import secrets
    from infra import settings

    settings.load_settings_from_environment.cache_clear()
    command.run_and_exit(secrets.reseal(command.load_settings_with_data_dir(data_dir), folder if remove_old else None))


def backup(folder: Folder, engine_database: EngineDatabase = None, data_dir: DataDir = None) -> None:
    """Back up database, engine and object store as of one moment, into a new folder, while everything runs.

    Of a running `haulage up`, or of the installation that the settings name, with the databases of its Temporal.
    """
    from cli.backups import backup as backing_up
    from infra import settings

    log.configure_json_logging("WARNING")
    folder_of_data = command.load_settings_with_data_dir(data_dir).data_dir
    is_embedded = set_environment_of_running_installation(folder_of_data)
    settings.load_settings_from_environment.cache_clear()
    loaded = command.load_settings_with_data_dir(data_dir)

    async def run() -> int:
        engine = backing_up.choose_engine_databases(
            loaded, folder_of_data, engine_database or [], is_embedded=is_embedded
        )
        return await backing_up.back_up_and_print_summary(loaded, folder, engine)

    command.run_and_exit(run())


def restore(folder: Folder, engine_database: EngineDatabase = None, data_dir: DataDir = None) -> None:
    """Restore a backup where no data is yet, and reconcile what was restored; nothing is overwritten.

    Without --engine-database into the data folder of a `haulage up`, which has no data but its secrets.json.
    """
    from cli.backups import restore as restoring

    log.configure_json_logging("WARNING")
    loaded = command.load_settings_with_data_dir(data_dir)
    command.run_and_exit(restoring.restore_and_print_findings(loaded, folder, engine_database or []))


def reconcile() -> None:
    """Bring database, engine and object store of a restored installation together, and say what is not there.

    Nothing but PostgreSQL, Temporal and the object store may run. Safe to repeat.
    """
    from cli.backups import reconcile as reconciling

    log.configure_json_logging("WARNING")
    command.run_and_exit(reconciling.reconcile_and_print_findings(command.load_settings_or_exit()))


@systems_app.command("list")
def list_systems(api: Api = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List the systems: which run, and which are paused, by whom and why."""
    _request_and_print_systems("GET", "/v1/systems", None, api, data_dir, as_json=as_json)


@systems_app.command("pause")
def pause_system(
    system: System, reason: Reason, who: Who = "", api: Api = None, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Pause a system: it begins nothing, and finishes what it has begun."""
    _request_and_print_systems(
        "POST",
        f"/v1/systems/{encode_path_step(system)}/pause",
        _build_operator_body(who, reason),
        api,
        data_dir,
        as_json=as_json,
    )


@systems_app.command("resume")
def resume_system(
    system: System, reason: Reason, who: Who = "", api: Api = None, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Resume a paused system."""
    _request_and_print_systems(
        "POST",
        f"/v1/systems/{encode_path_step(system)}/resume",
        _build_operator_body(who, reason),
        api,
        data_dir,
        as_json=as_json,
    )


def _build_operator_body(who: str, reason: str) -> Mapping[str, str]:
    return {"who": who or command.get_user_name(), "reason": reason}


def _request_and_print_systems(
    method: str,
    path: str,
    body: Mapping[str, str] | None,
    api: str | None,
    data_dir: Path | None,
    *,
    as_json: bool,
) -> None:
    async def request_systems(address: ApiAddress, _: ProgressDisplay) -> CommandOutput:
        transport = RetryingApiTransport(address.url, address.key, command.CONNECT_TIMEOUT_SECONDS)
        await transport.open()
        try:
            options: dict[str, Any] = {} if body is None else {"json": body}
            answer = await transport.request_json(method, path, **options)
        finally:
            await transport.close()
        return CommandOutput(answer, tuple(map(_describe_system, answer.get("items", [answer]))))

    command.run_at_terminal_and_exit(
        command.run_with_api(data_dir, api, request_systems, as_json=as_json, as_admin=True)
    )


def _describe_system(system: Mapping[str, Any]) -> str:
    pause = system["paused"]
    if pause is None:
        return f"{system['system']}: running"
    paused_at = pause["paused_at"] and datetime.fromisoformat(pause["paused_at"])
    since = f" since {wording.format_time(paused_at)}" if paused_at else ""
    return f"{system['system']}: paused{since} by {pause['who']}: {pause['reason']}"
