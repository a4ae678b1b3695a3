"""The variables that lead to the parts of a running `haulage up`, for the commands that are typed beside it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dev.embedded import record

FILE = "environment"
TELLING = "HAULAGE_DATABASE__URL"


@contextmanager
def told(data_dir: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Keep the variables, while the body runs, in a file that a shell can read too; only its owner can."""
    path = data_dir / FILE
    path.touch(mode=0o600)
    path.write_text("".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items()))
    try:
        yield
    finally:
        path.unlink()


def adopt(data_dir: Path) -> bool:
    """Take the variables over, unless this shell has its own or nothing runs there; says whether it did."""
    path = data_dir / FILE
    supervisor = record.read(data_dir / "run.json").supervisor
    if TELLING in os.environ or not path.exists() or supervisor is None or not supervisor.runs:
        return False
    pairs = [shlex.split(line)[0].partition("=") for line in path.read_text().splitlines()]
    os.environ.update((name, value) for name, _, value in pairs)
    return True


def chosen(data_dir: Path) -> str:
    """Adopt, and say in words whose parts the variables lead to now."""
    if adopt(data_dir):
        return f"the parts of the `haulage up` that runs in {data_dir}"
    if TELLING in os.environ:
        return f"the parts that the environment names ({TELLING} is set)"
    return f"the environment's and default addresses, because no `haulage up` runs in {data_dir}"
