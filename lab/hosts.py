"""Hosts: each is a network, mount and process namespace of its own, with its own `/etc`, `/var`, `/run` and `/tmp`.

All hosts live in the namespaces of the lab's own process: when that ends, however it ends, the kernel ends their
processes and removes their interfaces and mounts.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from lab.topology import NETWORK_BITS, ROOT, HostSpec
from lab.units import Unit, load_unit

BRIDGE = "lab"
CLOCK_LIBRARY = "/opt/temporal/bin/clock.so"
START_SECONDS = 30.0
CLOCK_USERS = {"haulage", "postgres"}
"""Whose processes have a wall clock that can be moved: those of Go read the time without the C library."""
_FILL = "/var/lib/fill"
COMMAND_SECONDS = 120.0
PATH = "/usr/lib/postgresql/15/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The first process of a host: it makes the host's view of the file system, then collects processes that have ended.
_INIT = """
set -e
hostname "$HOST_NAME"
mount -t overlay overlay -o lowerdir=/etc,upperdir="$FOLDER/etc",workdir="$FOLDER/.etc" /etc
DATA="$FOLDER"
if test -n "$DISK"; then
    # A disk of its own, which may be full; the kernel lets go of it with the host.
    DATA="$FOLDER/disk"
    mkdir -p "$DATA"
    test -e "$DATA.img" || { truncate --size "$DISK" "$DATA.img"; mkfs.ext4 -q -F "$DATA.img"; }
    mount -o loop "$DATA.img" "$DATA"
    mkdir -p "$DATA/var" "$DATA/.var"
fi
mount -t overlay overlay -o lowerdir=/var,upperdir="$DATA/var",workdir="$DATA/.var" /var
mount -t tmpfs -o mode=755 tmpfs /opt
mkdir -p /opt/haulage /opt/python /opt/temporal/bin /opt/seaweedfs/bin
mount --bind "$CHECKOUT" /opt/haulage
mount --bind "$PROGRAMS" /opt/temporal/bin
mount --bind "$PROGRAMS" /opt/seaweedfs/bin
mount --bind "$PYTHON" /opt/python
if test -n "$CLOSED"; then
    # Python lies below a folder that other users may not enter: show that alone, in its place.
    mount -t tmpfs -o mode=755 tmpfs "$CLOSED"
    mkdir -p "$PYTHON"
    mount --bind /opt/python "$PYTHON"
fi
mount -t tmpfs -o mode=755 tmpfs /run
test "$CLOSED" = /tmp || mount -t tmpfs -o mode=1777 tmpfs /tmp
head --bytes 8 /dev/zero > /run/clock
mount -t proc proc /proc
ip link set lo up
echo ready
exec >/dev/null
trap : CHLD
while :; do sleep 3600 & wait $! || :; done
"""


class HostFailed(Exception):
    """A command on a host has failed; the text is what it printed at last."""


def find_closed_ancestor(path: Path) -> str:
    """Return the topmost folder above a path that other users may not enter; empty if there is none."""
    for folder in reversed(path.parents):
        if not folder.stat().st_mode & 0o001:
            return str(folder)
    return ""


class Host:
    """A host of the lab.

    Args:
        folder: Keeps the host's files, which outlive its loss, as a disk does.
        programs: The folder of programs that are not Debian's.
        disk: The size of its own disk, like `1500M`; empty for none.
    """

    def __init__(self, spec: HostSpec, folder: Path, programs: Path, disk: str = "") -> None:
        self.spec = spec
        self.name = spec.name
        self.folder = folder
        self.logs = folder / "log"
        self._programs = programs
        self._disk = disk
        self._relay: asyncio.subprocess.Process | None = None
        self._launcher: asyncio.subprocess.Process | None = None
        self._pid = 0
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        for name in ("etc", "var", "log", ".etc", ".var"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    @property
    def is_up(self) -> bool:
        """Whether the host runs."""
        return self._pid != 0

    def write(self, path: str, text: str, owner: str = "root", mode: int = 0o644) -> None:
        """Write a file below the host's /etc, before or while it runs."""
        target = self.folder / path.lstrip("/")
        if not target.is_relative_to(self.folder / "etc"):
            raise ValueError(f"{path} is not below /etc, which is all that the lab writes from outside.")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch(mode=0o600)
        target.write_text(text)
        uid, gid = self._find_ids(owner)
        os.chown(target, uid, gid)
        target.chmod(mode)

    def read(self, path: str) -> str | None:
        """Return a file of the host's /etc, or None if the lab wrote none."""
        target = self.folder / path.lstrip("/")
        return target.read_text() if target.is_file() else None

    async def start(self) -> None:
        """Make the host and connect it to the bridge; no unit runs yet."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOST_NAME": self.name,
            "FOLDER": str(self.folder),
            "CHECKOUT": str(ROOT),
            "DISK": self._disk,
            "PROGRAMS": str(self._programs),
            "PYTHON": sys.base_prefix,
            "CLOSED": find_closed_ancestor(Path(sys.base_prefix) / "bin"),
        }
        command = [
            "unshare",
            "--net",
            "--mount",
            "--pid",
            "--uts",
            "--ipc",
            "--fork",
            "--kill-child",
            "bash",
            "-c",
            _INIT,
        ]
        with (self.logs / "host.log").open("ab") as log:
            launcher = await asyncio.create_subprocess_exec(
                *command, stdout=subprocess.PIPE, stderr=log, env=environment
            )
        self._launcher = launcher
        answer = await asyncio.wait_for(launcher.stdout.readline(), START_SECONDS) if launcher.stdout else b""
        if answer != b"ready\n":
            raise HostFailed(f"{self.name} did not start: see {self.logs / 'host.log'}")
        (first,) = psutil.Process(launcher.pid).children()
        self._pid = first.pid
        network = str(self._pid)
        peer = ["type", "veth", "peer", "name", "eth0", "address", self.spec.mac, "netns", network]
        await run_command("ip", "link", "add", self.name, *peer)
        await run_command("ip", "link", "set", self.name, "master", BRIDGE, "up")
        await self.run("ip", "address", "add", f"{self.spec.address}/{NETWORK_BITS}", "dev", "eth0")
        await self.run("ip", "link", "set", "eth0", "up")
        await self.run("sysctl", "--quiet", "--load", "/etc/sysctl.d/haulage.conf")

    async def lose(self) -> None:
        """End all processes of the host at once and take it off the network, as when its power fails."""
        pid, self._pid = self._pid, 0
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        if pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._launcher is not None:
            await self._launcher.wait()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._running.clear()
        if pid:
            # The kernel does so, too, but not at once, and a host of the same name may start before.
            with suppress(HostFailed):
                await run_command("ip", "link", "delete", self.name)

    async def run(
        self,
        *command: str,
        user: str = "root",
        environment: Mapping[str, str] | None = None,
        seconds: float = COMMAND_SECONDS,
    ) -> str:
        """Run a command on the host to its end; return what it printed.

        Raises:
            HostFailed: Its exit code was not 0, or it took too long.
        """
        variables = {"PATH": PATH, **(environment or {})}
        return await run_command(*self._enter(user), *command, environment=variables, seconds=seconds)

    async def start_unit(self, name: str) -> None:
        """Start a unit and keep it running as its file says."""
        unit = load_unit(name, self.name)
        if unit.folders:
            owner = [f"--owner={unit.user}", f"--group={self._find_ids(unit.user)[1]}"]
            await self.run("install", "--directory", *owner, *unit.folders)
        process = await self._spawn(unit)
        self._tasks[name] = asyncio.create_task(self._keep_running(unit, process))

    async def stop_unit(self, name: str, *, kill: bool = False) -> None:
        """Stop a unit as systemd would, or kill it; it stays stopped."""
        unit = load_unit(name, self.name)
        if (task := self._tasks.pop(name, None)) is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        process = self._running.pop(name, None)
        if process is None or process.returncode is not None:
            return
        self._signal(process, signal.SIGKILL if kill else unit.kill_signal)
        try:
            await asyncio.wait_for(process.wait(), unit.stop_seconds)
        except TimeoutError:
            self._signal(process, signal.SIGKILL)
            await process.wait()

    def is_running(self, name: str) -> bool:
        """Whether the process of a unit runs."""
        process = self._running.get(name)
        return process is not None and process.returncode is None

    async def cut(self) -> None:
        """Cut the host off in silence: its packets and those for it are lost, and nothing is told of it."""
        await run_command("ip", "link", "set", self.name, "nomaster")

    async def connect(self) -> None:
        """End every cut, delay and loss of packets of this host."""
        if (relay := self._relay) is not None:
            self._relay = None
            relay.terminate()
            await relay.wait()
        await run_command("ip", "link", "set", self.name, "master", BRIDGE)
        await self.run("iptables", "--flush", "INPUT")

    async def drop_from(self, address: str, share: float = 1.0) -> None:
        """Lose packets that come from an address: all of them, or a share at random."""
        chance = [] if share >= 1 else ["-m", "statistic", "--mode", "random", "--probability", str(share)]
        await self.run("iptables", "--append", "INPUT", "--source", address, *chance, "--jump", "DROP")

    async def delay(self, seconds: float, loss: float = 0.0) -> None:
        """Delay all packets to and from the host by this time each, and lose a share of them."""
        tap = f"{self.name}-relay"
        module = [sys.executable, "-m", "lab.relay", self.name, tap, str(seconds), str(loss), "1"]
        self._relay = await asyncio.create_subprocess_exec(*module, cwd=ROOT, stdout=subprocess.PIPE)
        if self._relay.stdout is None or await self._relay.stdout.readline() != b"ready\n":
            raise HostFailed(f"the relay of {self.name} did not start")
        await self.cut()
        await run_command("ip", "link", "set", tap, "master", BRIDGE, "up")

    async def set_clock(self, seconds: int) -> None:
        """Move the wall clock of Haulage's and of PostgreSQL's processes by 0 to 127 seconds from the true time."""
        content = f"\\{seconds:03o}" + "\\0" * 7
        await self.run("sh", "-c", f"printf '{content}' | dd of=/run/clock conv=notrunc status=none")

    async def fill_disk(self) -> None:
        """Leave no byte on the host's own disk."""
        await self.run("sh", "-c", f"cat /dev/zero > {_FILL} 2>/dev/null || true")

    async def free_disk(self) -> None:
        """Remove what `fill_disk` wrote."""
        await self.run("rm", "--force", _FILL)

    def _enter(self, user: str) -> list[str]:
        enter = ["nsenter", "--target", str(self._pid), "--net", "--mount", "--pid", "--uts", "--ipc", "--"]
        uid, gid = self._find_ids(user)
        return [*enter, "setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--"] if uid else enter

    def _find_ids(self, user: str) -> tuple[int, int]:
        for line in (self.read("/etc/passwd") or "").splitlines():
            name, _, uid, gid, *_ = line.split(":")
            if name == user:
                return int(uid), int(gid)
        entry = pwd.getpwnam(user)
        return entry.pw_uid, entry.pw_gid

    async def _spawn(self, unit: Unit) -> asyncio.subprocess.Process:
        environment = unit.build_environment(self.read)
        environment.setdefault("HOME", "/tmp")  # noqa: S108 - the host's own
        arguments = unit.build_stand_in_arguments(environment)
        clock = [f"LD_PRELOAD={CLOCK_LIBRARY}", "LAB_CLOCK=/run/clock"] if unit.user in CLOCK_USERS else []
        with (self.logs / f"{unit.name}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self._enter(unit.user),
                *("env", "--chdir", unit.working_directory, *clock),
                *arguments,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._running[unit.name] = process
        return process

    async def _keep_running(self, unit: Unit, process: asyncio.subprocess.Process) -> None:
        while True:
            code = await process.wait()
            with (self.logs / f"{unit.name}.log").open("a") as log:
                log.write(f"lab: {unit.name} ended with {code} at {time.time():.1f}\n")
            if not unit.restarts:
                return
            await asyncio.sleep(unit.restart_seconds)
            process = await self._spawn(unit)

    @staticmethod
    def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
        """Signal the process itself, the child of the one that entered the host; to kill it kills its children, too."""
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=number is signal.SIGKILL):
                child.send_signal(number)


async def run_command(
    *command: str, environment: Mapping[str, str] | None = None, seconds: float = COMMAND_SECONDS
) -> str:
    """Run a command to its end; return what it printed.

    Raises:
        HostFailed: Its exit code was not 0, or it took too long.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), seconds)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise HostFailed(f"{_shorten(command)} took longer than {seconds:.0f} s") from None
    text = output.decode(errors="replace")
    if process.returncode:
        raise HostFailed(f"{_shorten(command)} ended with {process.returncode}: {text[-800:]}")
    return text


def _shorten(command: Sequence[str]) -> str:
    return " ".join(command[command.index("--") + 1 :] if "--" in command else command)[:200]
