"""Activities of tasks: checkpoints of lanes, and housekeeping."""
