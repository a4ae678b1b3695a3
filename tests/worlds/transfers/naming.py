"""Names of a world on the wire: each playing has hosts, folders, files and contents of its own."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from sims.gse.tasks import FileSpot
from tests.worlds.transfers.world import HostForm, PlannedRequest, TransferWorld, WorldHost

SOURCE_AGENT = "0:10.0.0.1"
CONTENT_BYTES = 3_000
_NAME = re.compile(r"world-[0-9]+")


def find_name(text: str) -> str:
    """Return the name of the world that an id, a folder or a URL belongs to; empty if it belongs to none."""
    match = _NAME.search(text)
    return match[0] if match else ""


@dataclass(frozen=True)
class TargetGoal:
    """What one target is to get: the same for all wishes that want the same."""

    file: int
    content: int
    project: str
    user: str
    folder: str
    agent_id: str
    container_id: str
    host: int


@dataclass(frozen=True)
class TransferNames:
    """The names of one playing of a world."""

    world: TransferWorld
    number: int

    @property
    def name(self) -> str:
        """The name that all others hold."""
        return f"world-{self.number}"

    def content(self, number: int) -> bytes:
        """Return the bytes of a content, which no other world has."""
        line = f"content {number} of {self.name}\n".encode()
        return line * (CONTENT_BYTES // len(line))

    def signature(self, content: int) -> str:
        """Return the SHA-256 of a content."""
        return hashlib.sha256(self.content(content)).hexdigest()

    def agent_id(self, host: WorldHost) -> str:
        """Return the id of a host's agent."""
        match host.form:
            case HostForm.SOURCE:
                return SOURCE_AGENT
            case HostForm.OLD:
                return f"0:{self.name}.{host.number}"
            case _:
                return f"{self.name}-host-{host.number}"

    def container_id(self, host: WorldHost) -> str:
        """Return the id of the container on a host, as GSE knows it; empty for the host itself."""
        return f"c0ffee{host.number}" if host.is_container else ""

    def folder(self, wish: PlannedRequest) -> str:
        """Return the folder that a wish names; those of projects differ, so that their files do."""
        name = f"{self.name}-{wish.options['project']}{wish.own_folder or ''}"
        folders = {"unix": f"/data/{name}", "slash": f"/data/{name}/slash/", "windows": f"C:\\data\\{name}"}
        return folders[wish.options["folder"]]

    def path(self, wish: PlannedRequest) -> str:
        """Return the full path of a wish's file, the same however the request spells it."""
        return f"/etc/{self.name}/{self.world.files[wish.file].path}/{wish.options['file_name']}"

    def request(self, wish: PlannedRequest) -> dict[str, Any]:
        """Return the body of a request, without its targets."""
        path, name = self.path(wish), wish.options["file_name"]
        spellings = {
            "whole": path,
            "folder": path.removesuffix(name),
            "relative": path.removeprefix("/"),
            "doubled": path.replace("/", "//"),
        }
        signature = self.signature(self.world.files[wish.file].content)
        return {
            "biz_id": int(wish.options["biz_id"]),
            "app_id": self.number,
            "file_path": spellings[wish.options["path"]],
            "file_name": name,
            "signature": signature.upper() if wish.options["signature"] == "upper" else signature,
            "target_user": wish.options["user"],
            "target_file_dir": self.folder(wish),
        }

    def target(self, wish: PlannedRequest, host: int) -> dict[str, str]:
        """Return how a request names a target."""
        found = self.world.hosts[host]
        container_id = self.container_id(found)
        if container_id and wish.options["container"] == "runtime":
            container_id = f"docker://{container_id}"
        return {"target_agent_id": self.agent_id(found), "target_container_id": container_id}

    def goal(self, wish: PlannedRequest, host: int) -> TargetGoal:
        """Return what a wish wants for one of its hosts."""
        found, file = self.world.hosts[host], self.world.files[wish.file]
        return TargetGoal(
            file=wish.file,
            content=file.content,
            project=wish.options["project"],
            user=wish.options["user"],
            folder=self.folder(wish).removesuffix("/"),
            agent_id=self.agent_id(found),
            container_id=self.container_id(found),
            host=host,
        )

    def spot(self, goal: TargetGoal) -> FileSpot:
        """Return where a goal's file lies in the end."""
        return FileSpot(goal.agent_id, goal.container_id, goal.folder, self.signature(goal.content))
