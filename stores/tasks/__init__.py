"""Storage of tasks: types, lanes, the archive, keys that callers choose, and long texts."""
