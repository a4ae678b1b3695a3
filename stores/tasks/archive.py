"""The archive: tasks that have ended, and how many there are.

A task that has ended never changes, so writing it again changes nothing, and it is counted once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import ARRAY, BigInteger, Integer, SmallInteger, Text, TextClause, bindparam, text

from domain.tasks import attempts
from domain.tasks.ids import TaskId, split_type
from domain.tasks.messages import Refs, Task
from infra.database import Session

_COLUMNS: Final = {
    "task_id": Text,
    "user_id": Text,
    "priority": Integer,
    "status": SmallInteger,
    "stage": Text,
    "crt_retry_num": Integer,
    "content": Text,
    "schedule_log": Text,
    "refs": SmallInteger,
    "order_time": BigInteger,
    "create_time": BigInteger,
    "modify_time": BigInteger,
    "attempts": Text,
    "lease": BigInteger,
}
_NAMES: Final = ", ".join(_COLUMNS)


def _bound(statement: str) -> TextClause:
    return text(statement).bindparams(
        *(bindparam(name, type_=ARRAY(kind)) for name, kind in _COLUMNS.items() if f":{name}" in statement)
    )


_WRITE = _bound(
    f"WITH written AS (INSERT INTO tasks_archive (type, pos, {_NAMES}) "  # noqa: S608 (all of it is written here)
    f"SELECT :type, :pos, * FROM unnest({', '.join(f':{name}' for name in _COLUMNS)}) "
    "ON CONFLICT DO NOTHING RETURNING status) "
    "INSERT INTO task_counts (type, pos, status, tasks) SELECT :type, :pos, status, count(*) FROM written "
    "GROUP BY status ON CONFLICT (type, pos, status) DO UPDATE SET tasks = task_counts.tasks + excluded.tasks"
).bindparams(bindparam("type", type_=Text), bindparam("pos", type_=Integer))
_DISCARD = text(
    "DELETE FROM task_contents USING unnest(:task_ids, :contents, :logs) AS ended (task_id, content, log) "
    "WHERE task_contents.task_id = ended.task_id AND ref NOT IN (content, log)"
).bindparams(*(bindparam(name, type_=ARRAY(Text)) for name in ("task_ids", "contents", "logs")))


async def write(session: Session, type_: str, pos: int, ended: Sequence[Task]) -> None:
    """Write down tasks that have ended; of their long texts only the last stay."""
    _, name = split_type(type_)
    ids = [str(TaskId(task.key, name, pos)) for task in ended]
    columns = {
        "user_id": [task.user_id for task in ended],
        "priority": [task.priority for task in ended],
        "status": [task.status for task in ended],
        "stage": [task.stage for task in ended],
        "crt_retry_num": [task.crt_retry_num for task in ended],
        "content": [_storable(task.content) for task in ended],
        "schedule_log": [_storable(task.log) for task in ended],
        "refs": [task.refs for task in ended],
        "order_time": [task.order_time for task in ended],
        "create_time": [task.create_time for task in ended],
        "modify_time": [task.modify_time for task in ended],
        "attempts": [attempts.written(task) for task in ended],
        "lease": [task.lease for task in ended],
    }
    await session.execute(_WRITE, {"type": type_, "pos": pos, "task_id": ids, **columns})
    last = {
        "contents": [task.content if task.refs & Refs.CONTENT else "" for task in ended],
        "logs": [task.log if task.refs & Refs.LOG else "" for task in ended],
    }
    await session.execute(_DISCARD, {"task_ids": ids, **last})


def _storable(value: str) -> str:
    """PostgreSQL's text has no NUL."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}")
