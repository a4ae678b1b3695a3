# ruff: noqa: PLC0415 - a command loads only what it needs
"""`haulage orders`: set platforms up, fetch their orders, and steer slices, by the administrator's key."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import command
from cli.command import Api, ApiAddress, AsJson, CommandOutput, DataDir, ExitCode, Reason, Who
from cli.progress import ProgressDisplay
from domain.faults import format_count

if TYPE_CHECKING:
    from haulage.orders import Orders, OrderSlice, Platform

app = typer.Typer(
    no_args_is_help=True,
    help="Orders of platforms. Exit codes: 0 done, 1 slices failed or the platform cannot be read, 2 wrong or refused, "
    "3 the API does not answer.",
)

DEFAULT_SINCE = "last 3 months"
FAILED_SHOWN = 20

Number = Annotated[str, typer.Argument(help="The platform's name, which you choose when you set it up.")]


@app.command("set-up")
def set_up(
    platform: Number,
    base_url: Annotated[str, typer.Argument(help="Where the platform's API begins.")],
    kind: Annotated[
        str, typer.Option(help="taobao, pinduoduo, shopify, woocommerce, amazon, or a kind of your own, by --record.")
    ],
    credentials: Annotated[str, typer.Option(help="NAME of NAME.json in the folder of credentials.")],
    shop: Annotated[str, typer.Option(help="The shop at the platform.")] = "shop",
    since: Annotated[
        str | None,
        typer.Option(
            help="Where orders begin: “last 2 hours”, or a time with its zone; “last 3 months” by default. "
            "A platform that has begun keeps its beginning."
        ),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="JSON file with the capability of a kind of your own; --kind is its name.")
    ] = None,
    notify_url: Annotated[str | None, typer.Option(help="Receives alarms.")] = None,
    project: Annotated[str | None, typer.Option(help="Whose orders they are; by default this machine's own.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="More configuration, NAME=VALUE; again for others.")] = None,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Set a platform up and configure it; from then on its orders are fetched every minute."""
    from haulage.errors import RequestRefused
    from haulage.orders import PlatformSetup

    options = {"credentials": credentials, **({"starttime": since} if since else {}), **_parse_options(option or [])}
    capability = None if record is None else _load_json_record(record)

    async def set_up_and_describe(orders: Orders, address: ApiAddress, _: ProgressDisplay) -> CommandOutput:
        if project is None and api is not None:
            raise command.CommandFault("--api needs --project, the id of the project whose orders they are.")
        owner = project or await _find_own_project_id(address, data_dir)
        what = {"kind": kind, "shop": shop, "base_url": base_url, "capability": capability, "notify_url": notify_url}
        setup = PlatformSetup.model_validate({"project_id": owner, **what})
        # One that has not begun would else be fetched with the defaults before it is configured.
        has_begun = await _has_begun_to_claim_orders(orders, platform)
        begins = {} if has_begun else {"starttime": DEFAULT_SINCE}
        await orders.set_up(platform, setup.model_copy(update={"is_paused": not has_begun}))
        try:
            config = await orders.configure(platform, **{**begins, **options})
        except RequestRefused as refused:
            if has_begun:
                raise
            left = f"{platform} is set up, paused and not configured: mend the command and run it again, or remove it: "
            left += f"POST /v1/platforms/{platform}/remove."
            raise RequestRefused(refused.status, refused.code, f"{refused} {left}", refused.request_id) from None
        if not has_begun:
            await orders.resume(platform, who=command.get_user_name(), reason="set up by `haulage orders set-up`")
        starttime = config.effective["starttime"].value
        line = f"{platform}: {kind} at {base_url}, orders {starttime}; version {config.version} of its configuration"
        return CommandOutput(config.model_dump(mode="json"), (line,))

    run_as_admin(set_up_and_describe, api, data_dir, as_json=as_json)


async def _find_own_project_id(address: ApiAddress, data_dir: Path | None) -> str:
    """Return the id of this machine's own project, which is made if there is none."""
    from haulage.projects import find_project_id_of_key

    folder = command.load_settings_with_data_dir(data_dir).data_dir
    own = await command.load_or_create_project_key(address.url, address.key, folder)
    found = await find_project_id_of_key(address.url, own)
    if found is None:
        raise command.CommandFault(f"The key in {folder} belongs to no project: name the project by --project.")
    return found


async def _require_known_platform_unless_project_key(orders: Orders, platform: str) -> None:
    """Raise RequestRefused if there is no such platform; a project's key, which may not see platforms, passes."""
    from haulage.errors import RequestRefused

    try:
        await orders.get(platform)
    except RequestRefused as refused:
        if refused.code == "not_found":
            raise


async def _has_begun_to_claim_orders(orders: Orders, platform: str) -> bool:
    """Return whether a platform is set up and orders were claimed."""
    from haulage.errors import RequestRefused

    try:
        return (await orders.get(platform)).starts_at is not None
    except RequestRefused as refused:
        if refused.code != "not_found":
            raise
        return False


@app.command()
def fetch(platform: Number, api: Api = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Fetch all orders that have settled, now, and wait until they are stored."""

    async def fetch_or_fail_on_trouble(orders: Orders, _: ApiAddress, progress: ProgressDisplay) -> CommandOutput:
        async for seen in orders.fetch(platform):
            _show_platform(seen, progress)
        await _raise_if_platform_has_trouble_or_failed_slices(orders, seen)
        return CommandOutput(seen.model_dump(mode="json"), (_describe_platform(seen),))

    run_as_admin(fetch_or_fail_on_trouble, api, data_dir, as_json=as_json)


@app.command()
def status(
    platform: Annotated[str | None, typer.Argument(help="The platform's name; without it, a line of each.")] = None,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Show how far a platform, or each, is complete, and what has failed; the exit code is 1 if something has."""
    from haulage.orders import SliceState

    async def describe_each_platform(orders: Orders) -> CommandOutput:
        found = [await orders.get(each.platform) async for each in orders.list_platforms()]
        none = () if found else ("No platform is set up. `haulage orders set-up` does it.",)
        return CommandOutput(
            {"platforms": [each.model_dump(mode="json") for each in found]},
            tuple(map(_describe_platform, found)),
            none,
            exit_code=ExitCode.DONE if all(map(_is_well, found)) else ExitCode.FAILED,
        )

    async def describe_state_and_faults(orders: Orders, _: ApiAddress, __: ProgressDisplay) -> CommandOutput:
        if platform is None:
            return await describe_each_platform(orders)
        seen = await orders.get(platform)
        failed, unswept = (
            orders.list_slices(platform, state=SliceState.FAILED),
            orders.list_slices(platform, has_failed_sweep=True),
        )
        faults = await _describe_latest_faults(platform, failed, seen.slices_failed, "state=failed")
        faults += await _describe_latest_faults(platform, unswept, seen.sweeps_failed, "sweep=failed")
        lines = (_describe_platform(seen), *faults)
        return CommandOutput(
            seen.model_dump(mode="json"), lines, exit_code=ExitCode.DONE if _is_well(seen) else ExitCode.FAILED
        )

    run_as_admin(describe_state_and_faults, api, data_dir, as_json=as_json)


@app.command("list")
def list_orders(
    platform: Number,
    limit: Annotated[int, typer.Option(min=1, help="How many, last modified first.")] = 10,
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List the orders that are stored, one JSON object a line; decimals are shortened, as JSON readers do."""

    async def list_newest_orders(orders: Orders, _: ApiAddress, __: ProgressDisplay) -> CommandOutput:
        found = []
        async for each in orders.list_orders(platform=platform):
            found.append(each)
            if len(found) == limit:
                break
        if not found:
            await _require_known_platform_unless_project_key(orders, platform)
        lines = tuple(json.dumps(each.order, ensure_ascii=False) for each in found)
        none = () if found else (f"No order of {platform} is stored yet.",)
        return CommandOutput({"orders": [each.model_dump(mode="json") for each in found]}, lines, none)

    run_as_admin(list_newest_orders, api, data_dir, as_json=as_json)


@app.command()
def pause(
    platform: Number,
    reason: Reason,
    who: Who = "",
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Pause a platform: slices that are being read are finished, no other is claimed."""

    async def pause_and_describe(orders: Orders, _: ApiAddress, __: ProgressDisplay) -> CommandOutput:
        schedule = await orders.pause(platform, who=who or command.get_user_name(), reason=reason)
        return CommandOutput(schedule.model_dump(mode="json"), (f"{platform}: paused",))

    run_as_admin(pause_and_describe, api, data_dir, as_json=as_json)


@app.command()
def resume(
    platform: Number,
    reason: Reason,
    who: Who = "",
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Resume a paused platform."""

    async def resume_and_describe(orders: Orders, _: ApiAddress, __: ProgressDisplay) -> CommandOutput:
        schedule = await orders.resume(platform, who=who or command.get_user_name(), reason=reason)
        return CommandOutput(schedule.model_dump(mode="json"), (f"{platform}: resumed",))

    run_as_admin(resume_and_describe, api, data_dir, as_json=as_json)


@app.command()
def backfill(
    platform: Number,
    start: Annotated[datetime, typer.Argument(help="From this time on, in UTC.")],
    end: Annotated[datetime, typer.Argument(help="Until this time; 12 hours later at most.")],
    who: Who = "",
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Read the complete slices of a time again; no watermark moves."""

    async def start_backfill_and_describe(orders: Orders, _: ApiAddress, __: ProgressDisplay) -> CommandOutput:
        begun = await orders.start_backfill(
            platform, _assume_utc_if_naive(start), _assume_utc_if_naive(end), who=who or command.get_user_name()
        )
        return CommandOutput(begun.model_dump(mode="json"), (f"{platform}: back-fill {begun.backfill_id} has begun",))

    run_as_admin(start_backfill_and_describe, api, data_dir, as_json=as_json)


@app.command()
def remove(
    platform: Number,
    reason: Reason,
    who: Who = "",
    api: Api = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Remove a paused platform with its ledger and its configuration; its orders stay."""

    async def remove_and_describe(orders: Orders, _: ApiAddress, __: ProgressDisplay) -> CommandOutput:
        await orders.remove(platform, who=who or command.get_user_name(), reason=reason)
        return CommandOutput({"platform": platform, "removed": True}, (f"{platform}: removed; its orders stay",))

    run_as_admin(remove_and_describe, api, data_dir, as_json=as_json)


Work = Callable[["Orders", ApiAddress, ProgressDisplay], Awaitable[CommandOutput]]


def run_as_admin(work: Work, api: str | None, data_dir: Path | None, *, as_json: bool) -> None:
    """Do some work with a client that has the administrator's key."""
    from haulage.orders import Orders

    async def run_with_client(address: ApiAddress, progress: ProgressDisplay) -> CommandOutput:
        async with Orders(address.url, address.key) as orders:
            return await work(orders, address, progress)

    command.run_at_terminal_and_exit(
        command.run_with_api(data_dir, api, run_with_client, as_json=as_json, as_admin=True)
    )


async def _describe_latest_faults(
    platform: str, slices: AsyncIterator[OrderSlice], count: int, query: str
) -> list[str]:
    """Describe the latest alone: the failed set of a platform of years may have hundreds of thousands of slices."""
    lines, shown = list[str](), 0
    while count and shown < FAILED_SHOWN and (each := await anext(slices, None)) is not None:
        shown += 1
        if each.fault is not None:
            lines.append(f"{each.slice} {each.state}: {each.fault.sentence}")
    if shown == FAILED_SHOWN < count:
        lines.append(f"and {count - shown:,} more; `haulage ask '/v1/platforms/{platform}/slices?{query}'` lists them")
    return lines


async def _raise_if_platform_has_trouble_or_failed_slices(orders: Orders, seen: Platform) -> None:
    """Raise WorkFailed if the platform has a trouble or failed slices."""
    from haulage.errors import WorkFailed
    from haulage.orders import SliceState

    facts = {"platform": seen.platform, "slices_failed": seen.slices_failed, "complete_to": seen.complete_to}
    if seen.trouble is not None:
        raise WorkFailed(seen.trouble.sentence, {**facts, "code": seen.trouble.code})
    failed = orders.list_slices(seen.platform, state=SliceState.FAILED)
    first = await anext(failed, None) if seen.slices_failed else None
    # Where all were redone, split or skipped meanwhile, there is none any more.
    if first is not None:
        cause = first.fault.sentence if first.fault else ""
        raise WorkFailed(
            f"{format_count(seen.slices_failed, 'slice')} of {seen.platform} failed, the first {first.slice}: {cause} "
            f"Mend the cause, then `haulage orders redo {seen.platform}`.",
            {**facts, "code": first.fault.code if first.fault else None},
        )


def _show_platform(seen: Platform, progress: ProgressDisplay) -> None:
    unserved = _describe_missing_worker(seen)
    if seen.starts_at is None or seen.claimed_to is None or seen.complete_to is None:
        progress.show(seen.platform, 0, None, f"nothing is claimed yet{unserved}")
        return
    done, total = seen.complete_to - seen.starts_at, seen.claimed_to - seen.starts_at
    text = f"{_format_complete_to(seen.complete_to)}, {format_count(seen.slices_open, 'slice')} open{unserved}"
    # Without a total it is shown at once, however little has changed since.
    progress.show(seen.platform, int(done.total_seconds()), None if unserved else int(total.total_seconds()), text)


def _describe_missing_worker(seen: Platform) -> str:
    """Return since when no worker serves a platform, and what does; nothing where one does."""
    if seen.unserved_since is None:
        return ""
    since = f"{seen.unserved_since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f"; no worker serves it since {since}: start one by `haulage worker --queues orders-{seen.platform}`"


def _is_well(seen: Platform) -> bool:
    return seen.trouble is None and not seen.slices_failed


def _describe_platform(seen: Platform) -> str:
    complete_to = "nothing yet" if seen.complete_to is None else _format_complete_to(seen.complete_to)
    trouble = "" if seen.trouble is None else f"; {seen.trouble.sentence}"
    unconfigured = " and not configured" if seen.starts_at is None and not seen.is_configured else ""
    paused = f", paused{unconfigured}" if seen.is_paused else ""
    unserved = _describe_missing_worker(seen)
    slices = f"{format_count(seen.slices_open, 'slice')} open, {seen.slices_failed:,} failed"
    return f"{seen.platform}: {complete_to}, {slices}{paused}{trouble}{unserved}"


def _format_complete_to(moment: datetime) -> str:
    return f"complete to {moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _parse_options(lines: list[str]) -> dict[str, Any]:
    """Parse NAME=VALUE; a value that is JSON is read as such."""
    options: dict[str, Any] = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals:
            raise typer.BadParameter(f"{line!r} is no option. Write it as NAME=VALUE.", param_hint="--option")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def _assume_utc_if_naive(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _load_json_record(path: Path) -> Any:
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path} holds no JSON: {error}.", param_hint="--record") from None
    if not isinstance(record, dict):
        raise typer.BadParameter(f"{path} holds no JSON object, as a capability is.", param_hint="--record")
    return record
