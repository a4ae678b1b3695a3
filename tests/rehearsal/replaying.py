"""`python -m tests.rehearsal.replaying FOLDER`: lead the workflows of this tree through the histories of a folder."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

import worker
from infra import temporal


async def replay(folder: Path) -> int:
    """Replay every history; return how many do not."""
    replayer = Replayer(workflows=worker.list_workflows(), plugins=[temporal.build_plugin(sandboxed=True)])
    failed = 0
    for path in sorted(folder.glob("*.json")):
        result = await replayer.replay_workflow(
            WorkflowHistory.from_json(path.stem, path.read_text()), raise_on_replay_failure=False
        )
        if result.replay_failure is not None:
            failed += 1
            sys.stdout.write(f"{path.name}: {result.replay_failure}\n")
    return failed


if __name__ == "__main__":
    sys.exit(min(1, asyncio.run(replay(Path(sys.argv[1])))))
