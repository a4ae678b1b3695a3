"""What tests share: one module a thing. The index is in README.md."""
