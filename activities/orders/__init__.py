"""Orders: the hands. What asks platforms runs on their own queues, the rest on one."""
