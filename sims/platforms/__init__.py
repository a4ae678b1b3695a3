"""Stand-ins for order platforms: their rules, a virtual clock, orders that change while they are read, the truth."""
