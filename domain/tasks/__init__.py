"""The rules of tasks: lanes that hold them, order, leases, retries; what is said to a lane and what it answers."""
