"""Stand-ins for outside systems, for the demo, the tests and the benches."""
