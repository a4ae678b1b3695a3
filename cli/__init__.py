"""The `haulage` command."""
