"""Workflow of tasks: the lane."""
