"""Development: a local installation with embedded components."""
