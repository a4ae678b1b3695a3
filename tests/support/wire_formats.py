"""The formats of ids, queues, schedules and keys: what the functions that build them make of samples."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from types import ModuleType
from typing import Any, Final

from domain.downloads.models import DownloadSpec, FileType
from domain.orders.windows import TimeWindow
from domain.tasks.names import LaneName, TaskId
from domain.transfers import names as transfers
from domain.transfers.models import FileByBizAppAndPath, TransferSpec
from domain.transfers.names import TransferJobKey, TransferTaskKey
from infra import housekeeping
from workflows.systems import import_names_modules

SPECS: Final = [
    DownloadSpec(task_id="{task_id}", project_id="{project_id}", file_name="{file_name}", type=type_)
    for type_ in FileType
]
JOB: Final = TransferJobKey(FileByBizAppAndPath(biz_id=1, app_id=2, path="{path}"), window_number=3)
TARGET: Final = TransferSpec(project_id="{project_id}", signature="{signature}", user="{user}", folder="{folder}")
SAMPLES: Final[Mapping[Any, Sequence[Any]]] = {
    DownloadSpec: SPECS,
    TimeWindow: [TimeWindow(start=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), end=datetime(2026, 1, 3, tzinfo=UTC))],
    LaneName: [("{project_id}/{name}", 4)],
    datetime: [datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)],
    bytes: [b"{body}"],
    Sequence[str]: [["whsec_c2VjcmV0"]],
}
"""By the type of an argument; any other is passed as its name in braces."""


NO_NAMES: Final = ("CONTENT_TYPE", "PATTERN", "ROUTE")
"""Constants whose names end so are no names that a history, an object or a client has; routes have their own list."""


def list_names_of_system(module: ModuleType) -> Iterator[str]:
    """List the texts that a module of names has, and what its functions build, without their names in Python."""
    formats = [
        result
        for name, function in vars(module).items()
        if name.startswith("build_") and getattr(function, "__module__", "") == module.__name__
        for each in build_samples(function)
        for result in _list_texts(each)
    ]
    texts = [
        text
        for name, value in vars(module).items()
        if name.isupper() and not name.startswith("_") and not name.endswith(NO_NAMES)
        for text in _list_texts(value)
    ]
    # The folder of a key is in the key.
    kept = [text for text in texts if not (text.endswith("/") and any(each.startswith(text) for each in formats))]
    yield from (f"{module.SYSTEM}: {each}" for each in (*kept, *formats))


def _list_texts(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case Mapping():
            return [f"{name}: {each}" for name, each in value.items()]
        case tuple() | frozenset():
            return [each for each in value if isinstance(each, str)]
    return []


def build_samples(function: Callable[..., Any]) -> Iterator[Any]:
    """Yield what a function makes of samples, without and with the arguments that have defaults."""
    types = typing.get_type_hints(function)
    parameters = inspect.signature(function).parameters.values()
    for passed in ([each for each in parameters if each.default is each.empty], parameters):
        samples = [SAMPLES.get(types[each.name], [f"{{{each.name}}}"]) for each in passed]
        yield from (function(*arguments) for arguments in product(*samples))


def list_ids_of_classes() -> Iterator[str]:
    """List the formats of ids that classes and other functions make."""
    task = TransferTaskKey(JOB, transfers.compute_target_key(TARGET, "{agent_id}", "{container_id}"), salt=5)
    yield f"transfers: {JOB}"
    yield f"transfers: {TransferJobKey(JOB.file, JOB.window_number, retry=1)}"
    yield f"transfers: {transfers.format_task_id(task, b'secret', '{project_id}')}"
    yield f"tasks: {TaskId(key='{key}', name='{name}', pos=4)}"


def list_housekeeping_schedules() -> Iterator[str]:
    """List the ids of the schedules that every system has."""
    for names in import_names_modules():
        yield f"{names.SYSTEM}: {housekeeping.build_schedule_id(names.SYSTEM)}"
