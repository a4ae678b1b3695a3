"""The embedded components and their supervisor: child processes on the loopback address."""
