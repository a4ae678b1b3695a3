"""What ours is measured against, each in an environment of its own."""
