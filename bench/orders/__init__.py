"""Orders beside their peers: one platform whose orders change while they are read, and what each of them misses."""
