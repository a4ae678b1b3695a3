"""Activities: everything that does I/O for workflows."""
