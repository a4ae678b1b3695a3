"""The environment variables of a running `haulage up`, for commands that are typed beside it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dev.embedded.processes import read_run

FILE = "environment"
MARKER_VARIABLE = "HAULAGE_DATABASE__URL"
"""Set wherever the environment names the components."""


@contextmanager
def publish_environment(data_dir: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Keep the variables, while the block runs, in a file that only its owner and their shell can read."""
    path = data_dir / FILE
    path.touch(mode=0o600)
    path.write_text("".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items()))
    try:
        yield
    finally:
        path.unlink()


def load_environment(data_dir: Path) -> bool:
    """Set the variables, unless this environment has its own or nothing runs there; return whether they were set."""
    path = data_dir / FILE
    supervisor = read_run(data_dir / "run.json").supervisor
    if MARKER_VARIABLE in os.environ or not path.exists() or supervisor is None or not supervisor.is_running:
        return False
    pairs = [shlex.split(line)[0].partition("=") for line in path.read_text().splitlines()]
    os.environ.update((name, value) for name, _, value in pairs)
    return True


def choose_environment(data_dir: Path) -> str:
    """Load the environment of a running `haulage up` if there is one; return which components are used."""
    if load_environment(data_dir):
        return f"the components of the `haulage up` that runs in {data_dir}"
    if MARKER_VARIABLE in os.environ:
        return f"the components that the environment names ({MARKER_VARIABLE} is set)"
    return f"the environment's and default addresses, because no `haulage up` runs in {data_dir}"
