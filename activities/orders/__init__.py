"""Activities of orders: those that call platforms run on the platforms' queues, all others on one."""
