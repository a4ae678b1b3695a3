"""`haulage up`: everything on one machine, until told to stop."""

from __future__ import annotations

import time

from rich.console import Console

from cli.process import stop_signal
from dev.house import house
from infra.settings import Settings


async def stay(settings: Settings) -> None:
    """Start everything, say where it is, and wait."""
    console = Console(highlight=False, soft_wrap=True)
    stop = stop_signal()
    began = time.perf_counter()
    async with house(settings) as running:
        source = f"{running.source}/rows?rows=1000"
        console.print(f"Ready after {time.perf_counter() - began:.1f} s. Ctrl-C stops everything.")
        console.print(f"  Console          {running.api}/console  (sign in with the admin key)")
        console.print(f"  API              {running.api}  (reference: {running.api}/docs)")
        console.print(f"  Temporal Web UI  {running.ui}")
        console.print(f"  Sample source    {source}")
        console.print(f"  Data             {settings.data_dir}")
        console.print(f"  Admin key        {running.admin_key}")
        await stop.wait()
        console.print("Stopping.")
