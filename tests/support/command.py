"""`haulage …` as people and scripts type it: exit code, standard output, standard error."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class CommandResult:
    """How a command ended."""

    code: int | None
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Its one answer."""
        answer: dict[str, Any] = json.loads(self.out)
        return answer


async def start_command(
    *arguments: str, env: Mapping[str, str], before: Callable[[], None] | None = None
) -> asyncio.subprocess.Process:
    """Type it, in a shell without settings of its own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HAULAGE_")}
    pipe = asyncio.subprocess.PIPE

    def in_the_foreground() -> None:
        # Where the suite itself runs in the background, Ctrl-C is ignored, and that is inherited.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if before:
            before()

    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", *arguments),
        cwd=ROOT,
        env={**clean, **env},
        stdout=pipe,
        stderr=pipe,
        preexec_fn=in_the_foreground,
    )


async def wait_for_exit(process: asyncio.subprocess.Process) -> CommandResult:
    """Wait for it."""
    out, err = await process.communicate()
    return CommandResult(process.returncode, out.decode(), err.decode())


@asynccontextmanager
async def running_silent_server() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Serve without an answer; give the address, and what is set once it is asked."""
    asked = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as silent:
        yield f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}", asked
