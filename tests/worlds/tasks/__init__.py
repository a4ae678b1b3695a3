"""Worlds of tasks: callers, workers and operators of one queue each, and what goes wrong with them."""
