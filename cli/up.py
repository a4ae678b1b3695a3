"""`haulage up`: a local installation until Ctrl-C, with addresses, a key, and a line to try for each system."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from cli.command import StoppedEarly, create_stop_event, load_or_create_project_key, wait_unless_stopped
from dev.embedded.preloading import ForkedPreloader
from dev.local import LocalInstallation, run_installation
from dev.stand_ins import PORTS
from infra.settings import Settings, list_variables_with_unused_values

SAMPLE_CHANGE: Final = '{"uprn": 7, "address_id": 70, "record": {"street": "Main Street", "number": 1}}'


@dataclass(frozen=True)
class SystemAndCommandBuilder:
    """A command that tries a system against the stand-ins."""

    system: str
    build: Callable[[Mapping[str, str]], str]
    """Returns the arguments of `haulage`, for the addresses of the stand-ins."""


def _build_transfer_arguments(_: Mapping[str, str]) -> str:
    # With it comes an HTTP server, which `haulage up` without stand-ins does not need.
    from sims.repository import SAMPLE_SIGNATURE  # noqa: PLC0415

    return f"transfers send app.conf --signature {SAMPLE_SIGNATURE} --to host-1 --to host-2"


EXAMPLES = (
    SystemAndCommandBuilder("downloads", lambda at: f'export "{at["source"]}/rows?rows=50000" --out customers.csv'),
    SystemAndCommandBuilder("transfers", _build_transfer_arguments),
    SystemAndCommandBuilder(
        "orders",
        lambda at: (
            f'orders set-up shop {at["platforms"]}/p/shop --kind shopify --credentials shop --since "last 2 hours"'
        ),
    ),
    SystemAndCommandBuilder("addresses", lambda _: f"addresses publish createUpdate '{SAMPLE_CHANGE}'"),
    SystemAndCommandBuilder("tasks", lambda _: "tasks create greet --register Ada Grace"),
)
"""What is printed to paste; the tutorials begin with the same commands."""


async def run_installation_until_stopped(settings: Settings, forked: ForkedPreloader | None, *, stand_ins: bool) -> int:
    """Start a local installation, print its addresses, and wait for SIGTERM or SIGINT; return the exit code.

    Args:
        forked: The preloader, if it was forked from this process.
    """
    console = Console(highlight=False, soft_wrap=True, markup=False)
    stop = create_stop_event()
    started = time.perf_counter()
    async with AsyncExitStack() as held:
        with console.status("Starting engine, database, object store, API and workers"):
            names = tuple(PORTS) if stand_ins else ()
            starting = held.enter_async_context(run_installation(settings, console.print, names, forked))
            try:
                running = await wait_unless_stopped(starting, stop)
            except StoppedEarly:
                console.print("Stopped before everything was ready; nothing runs any more.")
                return 130
        key = await load_or_create_project_key(running.api, running.admin_key, settings.data_dir)
        console.print(f"Ready after {time.perf_counter() - started:.1f} s. Ctrl-C stops everything.")
        if replaced := list_variables_with_unused_values(settings, running.settings):
            console.print(f"Not used, as this installation has its own components and secrets: {', '.join(replaced)}.")
        for line in describe_installation(running, key):
            console.print(line)
        await stop.wait()
        console.print("Stopping: API and workers end what they are in the midst of, then the components are stopped.")
    data_dir = settings.data_dir
    console.print(f"Stopped; data stay in {data_dir}." if data_dir.exists() else f"Stopped; {data_dir} was removed.")
    return 0


def describe_installation(running: LocalInstallation, key: str) -> list[str]:
    """Return the lines that tell how to use an installation; the last one is empty, for programs that wait for it."""
    lines = [
        f"  Console          {running.api}/console  (sign in with the admin key)",
        f"  API              {running.api}  (reference: {running.api}/docs)",
        f"  Temporal Web UI  {running.ui}",
        f"  Data             {running.settings.data_dir}",
        f"  Admin key        {running.admin_key}",
        f"  Project key      {key}",
    ]
    if running.stand_ins:
        lines.append("Stand-ins, each with a page that shows what it holds:")
        lines += [f"  {name:<15}  {address}/" for name, address in running.stand_ins.items()]
        lines.append("Try each system in another terminal, in this folder:")
        option = build_data_dir_option(running.settings.data_dir)
        lines += [f"  .venv/bin/haulage {example.build(running.stand_ins)}{option}" for example in EXAMPLES]
    return [*lines, ""]


def build_data_dir_option(data_dir: Path) -> str:
    """Return the option that a command needs to find an installation; empty for the default folder."""
    default: Path = Settings.model_fields["data_dir"].default
    return "" if data_dir == default.absolute() else f" --data-dir {shlex.quote(str(data_dir))}"
