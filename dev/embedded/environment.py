"""The variables of a running `haulage up`, in a file through which other commands find its components."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dev.embedded.run_file import RUN_FILE, read_run_state, replace_private_file

ENVIRONMENT_FILE = "environment"
MARKER_VARIABLE = "HAULAGE_DATABASE__URL"
"""Set wherever the environment names the components."""


@contextmanager
def write_environment_file_while_running(data_dir: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Keep the variables, while the block runs, in a file that only its owner and their shell can read."""
    path = data_dir / ENVIRONMENT_FILE
    # Whole or not at all: a command that read a part of it would take its own defaults for the rest.
    replace_private_file(path, "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items()))
    try:
        yield
    finally:
        remove_environment_file(data_dir)  # the whole folder may have been removed


def remove_environment_file(data_dir: Path) -> None:
    """Remove the variables of an installation that does not run any more."""
    (data_dir / ENVIRONMENT_FILE).unlink(missing_ok=True)


def set_environment_of_running_installation(data_dir: Path) -> bool:
    """Set the variables, unless this environment has its own or nothing runs there; return whether they were set."""
    path = data_dir / ENVIRONMENT_FILE
    # A supervisor that was killed leaves the file, whose addresses may be another program's by now.
    supervisor = read_run_state(data_dir / RUN_FILE).supervisor
    if MARKER_VARIABLE in os.environ or not path.exists() or supervisor is None or not supervisor.is_running:
        return False
    pairs = [variable.partition("=") for variable in shlex.split(path.read_text())]  # a value may have several lines
    os.environ.update((name, value) for name, _, value in pairs)
    return True


def load_environment_and_describe(data_dir: Path) -> str:
    """Load the environment of a running `haulage up` if there is one; return which components are used."""
    if set_environment_of_running_installation(data_dir):
        return f"the components of the `haulage up` that runs in {data_dir}"
    if MARKER_VARIABLE in os.environ:
        return f"the components that the environment names ({MARKER_VARIABLE} is set)"
    return (
        f"the default addresses, as no `haulage up` runs in {data_dir} and {MARKER_VARIABLE} is not set. "
        "`haulage up` (or `make up`) starts everything"
    )
