"""What serves development: embedded parts, their supervisor, and everything on one machine."""
