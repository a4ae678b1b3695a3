"""The plan of tasks: a lane holds tasks, gives them out, takes them back in time, and has them archived."""

from workflows.tasks.lane import ACT, LOOK, QUEUE, ROOM, SEARCH, TaskLane, attributes

__all__ = ["ACT", "LOOK", "QUEUE", "ROOM", "SEARCH", "TaskLane", "attributes"]
