"""The embedded components and their supervisor: child processes on the loopback address."""

from dev.embedded.stack import Stack, run_stack
from dev.embedded.supervisor import NotReady, ProcessSpec, StartFailed

__all__ = ["NotReady", "ProcessSpec", "Stack", "StartFailed", "run_stack"]
