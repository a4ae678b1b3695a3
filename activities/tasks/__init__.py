"""The hands of tasks: what lanes have written down."""
