"""Units: the files of `deploy/systemd`, read as systemd reads them, for hosts where no systemd runs.

Only what the shipped units use is understood; another directive is an error, so that the lab never leaves one out.
"""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.topology import DEPLOY

FOLDER = DEPLOY / "systemd"
_UNDERSTOOD = {
    "User",
    "WorkingDirectory",
    "Environment",
    "EnvironmentFile",
    "ExecStart",
    "StateDirectory",
    "RuntimeDirectory",
    "KillSignal",
    "TimeoutStopSec",
    "Restart",
    "RestartSec",
    "Type",
}
_WITHOUT_EFFECT_HERE = {"NoNewPrivileges", "ProtectSystem", "PrivateTmp"}
"""What confines a process further; `/tmp` is private to each host of the lab."""

ReadFile = Callable[[str], str | None]
"""Returns the text of a file on the host, or None if there is none."""


@dataclass(frozen=True)
class Unit:
    """One service, with its specifiers replaced."""

    name: str
    user: str
    command: str
    working_directory: str
    environment: Mapping[str, str]
    environment_files: tuple[str, ...]
    state_directories: tuple[str, ...]
    runtime_directories: tuple[str, ...]
    kill_signal: signal.Signals
    stop_seconds: float
    restarts: bool
    restart_seconds: float

    @property
    def folders(self) -> list[str]:
        """Return the folders that must exist, owned by the user, before it starts."""
        return [
            *(f"/var/lib/{name}" for name in self.state_directories),
            *(f"/run/{name}" for name in self.runtime_directories),
        ]

    def build_environment(self, read: ReadFile) -> dict[str, str]:
        """Return the variables of the process.

        Raises:
            FileNotFoundError: A file that must exist does not.
        """
        found = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **self.environment}
        for path in self.environment_files:
            text = read(path.removeprefix("-"))
            if text is None and not path.startswith("-"):
                raise FileNotFoundError(f"{self.name} reads {path}, which is not there.")
            found |= parse_environment_file(text or "")
        return found

    def build_stand_in_arguments(self, environment: Mapping[str, str]) -> list[str]:
        """Return the command line: `$NAME` is replaced by its words, `${NAME}` within a word by its value."""
        arguments: list[str] = []
        for word in shlex.split(self.command):
            if alone := re.fullmatch(r"\$(\w+)", word):
                arguments += shlex.split(environment.get(alone[1], ""))
            else:
                arguments.append(re.sub(r"\$\{(\w+)\}", lambda found: environment.get(found[1], ""), word))
        return arguments


def load_unit(name: str, host: str, folder: Path = FOLDER) -> Unit:
    """Read a unit, like `prometheus` or `haulage-worker@tasks`, as a host of this name would."""
    template, at, instance = name.partition("@")
    text = (folder / f"{template}{at}.service").read_text()
    service = _parse_service(text.replace("%i", instance).replace("%H", host), name)

    def get(key: str, default: str = "") -> str:
        return service.get(key, [default])[-1]

    return Unit(
        name=name,
        user=get("User", "root"),
        command=get("ExecStart"),
        working_directory=get("WorkingDirectory", "/"),
        environment=dict(each.split("=", 1) for line in service.get("Environment", []) for each in shlex.split(line)),
        environment_files=tuple(service.get("EnvironmentFile", [])),
        state_directories=tuple(get("StateDirectory").split()),
        runtime_directories=tuple(get("RuntimeDirectory").split()),
        kill_signal=signal.Signals[get("KillSignal", "SIGTERM")],
        stop_seconds=float(get("TimeoutStopSec", "90")),
        restarts=get("Restart", "no") == "always",
        restart_seconds=float(get("RestartSec", "0.1")),
    )


def parse_environment_file(text: str) -> dict[str, str]:
    """Return the variables of an EnvironmentFile: a line each, its quotes removed."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.split("=", 1) for line in lines if line and not line.startswith(("#", ";")))
    return {name: _unquote(value) for name, value in pairs}


def _unquote(value: str) -> str:
    is_quoted = len(value) > 1 and value[0] in "'\"" and value[-1] == value[0]
    return value[1:-1] if is_quoted else value


def _parse_service(text: str, name: str) -> Mapping[str, Sequence[str]]:
    section, found = "", dict[str, list[str]]()
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif section == "Service" and line and not line.startswith("#"):
            key, _, value = line.partition("=")
            if key not in _UNDERSTOOD | _WITHOUT_EFFECT_HERE:
                raise ValueError(f"{name} has {key}=, which the lab does not understand. Teach it in lab/units.py.")
            found.setdefault(key, []).append(value)
    return found
