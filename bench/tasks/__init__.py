"""Tasks beside the queues that others use: create, get, hold, set, and the full cycle, over HTTP and counted."""
