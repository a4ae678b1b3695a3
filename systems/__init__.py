"""The systems, and what each of them offers."""
