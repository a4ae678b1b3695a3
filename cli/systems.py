# ruff: noqa: PLC0415 - a command loads only what it needs
"""`haulage systems`: which systems run, and pausing and resuming each, by the administrator's key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from cli import command
from cli.command import Api, ApiAddress, AsJson, CommandOutput, DataDir, ProgressDisplay, Reason, Who

app = typer.Typer(no_args_is_help=True)

System = Annotated[str, typer.Argument(help="downloads, transfers, orders, addresses or tasks.")]


@app.command("list")
def list_systems(api: Api = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List the systems: which run, and which are paused, by whom and why."""
    _run("GET", "/v1/systems", None, api, data_dir, as_json=as_json)


@app.command()
def pause(
    system: System, reason: Reason, who: Who = "", api: Api = None, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Pause a system: it begins nothing, and finishes what it has begun."""
    _run("POST", f"/v1/systems/{system}/pause", _sign(who, reason), api, data_dir, as_json=as_json)


@app.command()
def resume(
    system: System, reason: Reason, who: Who = "", api: Api = None, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Resume a paused system."""
    _run("POST", f"/v1/systems/{system}/resume", _sign(who, reason), api, data_dir, as_json=as_json)


def _sign(who: str, reason: str) -> Mapping[str, str]:
    return {"who": who or command.get_user_name(), "reason": reason}


def _run(
    method: str,
    path: str,
    body: Mapping[str, str] | None,
    api: str | None,
    data_dir: Path | None,
    *,
    as_json: bool,
) -> None:
    async def work(address: ApiAddress, _: ProgressDisplay) -> CommandOutput:
        from haulage.transport import Transport

        transport = Transport(address.url, address.key, command.CONNECT_TIMEOUT_SECONDS)
        await transport.open()
        try:
            answer = await transport.json(method, path, **({} if body is None else {"json": body}))
        finally:
            await transport.close()
        return CommandOutput(answer, tuple(map(_describe, answer.get("items", [answer]))))

    folder = command.resolve_data_dir(data_dir)
    command.run_and_exit(command.run_with_api(folder, api, work, as_json=as_json, as_admin=True))


def _describe(system: Mapping[str, Any]) -> str:
    pause = system["paused"]
    if pause is None:
        return f"{system['system']}: running"
    return f"{system['system']}: paused since {pause['paused_at'][:19]} by {pause['who']}: {pause['reason']}"
