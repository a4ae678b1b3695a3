"""The peers of tasks: queues that others use, behind the same small front."""
