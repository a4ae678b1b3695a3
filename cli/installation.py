# ruff: noqa: PLC0415 - a command loads only what it needs
"""Commands about an installation as a whole: its secrets, its backup, and its restore."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli import command
from cli.command import DataDir
from dev.embedded.environment import set_environment_of_running_installation
from dev.embedded.secrets import SECRET_NAMES
from infra import log

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
