"""The ways to modules under the settings of every version that is in use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from socket import socket
from typing import Any, Final, TypeAlias

from clients.modules.channel import Channel
from domain.addresses.operations import Module
from infra.settings import ModuleSettings, ModulesSettings

OpenSocket: TypeAlias = "Callable[[Any], socket]"

KEPT_MAX: Final = 16
"""Channels beyond which those that were not used for longest are closed, if nothing calls by them."""


class Channels:
    """Opens a channel for each module and its settings when it is first needed.

    Args:
        environment: What the environment says. An address that it does not name was given by an operator.
        open_socket: Opens a connection to what an operator may name, or refuses to.
    """

    def __init__(self, environment: ModulesSettings, folder: Path, open_socket: OpenSocket | None) -> None:
        self._environment = environment
        self._folder = folder
        self._open_socket = open_socket
        self._open: dict[tuple[Module, ModuleSettings], Channel] = {}

    async def get(self, module: Module, settings: ModuleSettings) -> Channel:
        """The channel to a module under these settings."""
        key = (module, settings)
        channel = self._open.pop(key, None)
        if channel is None:
            is_ours = settings.base_url == getattr(self._environment, module).base_url
            channel = Channel(module, settings, self._folder, None if is_ours else self._open_socket)
            channel.open()
        # What was used last stands last.
        self._open[key] = channel
        await self._close_unused()
        return channel

    async def close(self) -> None:
        """Close them all."""
        while self._open:
            _, channel = self._open.popitem()
            await channel.close()

    async def _close_unused(self) -> None:
        excess = max(0, len(self._open) - KEPT_MAX)
        for key in [key for key, channel in self._open.items() if not channel.calls][:excess]:
            await self._open.pop(key).close()
