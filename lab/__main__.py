"""`python -m lab`: run the lab until Ctrl-C; `… down` ends it, `… exec HOST COMMAND …` runs a command on a host."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from lab.inside import enter_own_namespaces, run_on_host, stop_lab
from lab.running import Lab, running_lab
from lab.tools import prepare_tools
from lab.topology import load_topology


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


async def run() -> None:
    """Bring the lab up, say what runs where, and keep it until a signal comes."""
    task = asyncio.create_task(_run_until_cancelled())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with suppress(asyncio.CancelledError):
        await task


async def _run_until_cancelled() -> None:
    async with running_lab(load_topology(), prepare_tools(), say, lambda _: {}) as lab:
        _print_hosts(lab)
        await asyncio.Event().wait()


def _print_hosts(lab: Lab) -> None:
    for host in lab.hosts.values():
        say(f"{host.name:8} {host.spec.address:12} {' '.join(host.spec.units)}")
    for name, address in lab.topology.addresses.items():
        say(f"{name:8} {address:12} moves; now on {lab.primary if name == 'database' else 'a proxy'}")
    say(f"The API is {lab.api}, Prometheus http://{lab.hosts['watch1'].spec.address}:9090, from this machine.")
    say(f"The admin key is {lab.configuration.secrets.admin_key}. Logs are below .haulage-lab. Ctrl-C ends everything.")


def main(arguments: Sequence[str]) -> None:
    """Prepare what needs the network outside, then run within namespaces of our own."""
    match list(arguments):
        case []:
            prepare_tools()
            enter_own_namespaces("lab", arguments)
            asyncio.run(run())
        case ["down"]:
            stop_lab()
        case ["exec", host, *command] if command:
            sys.exit(run_on_host(host, command))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
