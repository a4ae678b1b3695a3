"""The embedded parts and their supervisor: everything Haulage stands on, in child processes on the loopback address."""

from dev.embedded.part import NotReady, Part, PartFailed
from dev.embedded.stack import Stack, embedded

__all__ = ["NotReady", "Part", "PartFailed", "Stack", "embedded"]
