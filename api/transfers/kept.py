"""What does not change any more and is asked for again and again: the newest of it is kept in this process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

KEPT_MAX = 5_000


class Kept(Generic[Key, Value]):
    """So many values; what was kept first goes first."""

    def __init__(self, most: int = KEPT_MAX) -> None:
        self._most = most
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """What was kept, if it still is."""
        return self._values.get(key)

    def keep(self, key: Key, value: Value) -> None:
        """Keep a value."""
        self._values[key] = value
        if len(self._values) > self._most:
            self._values.popitem(last=False)
