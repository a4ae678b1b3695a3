"""Rules of task queues: lanes, queue order, leases and retries, and the messages between the API and a lane."""
