"""What `haulage demo` shows: each system at real work against stand-ins, with a check of the outcome."""
