"""What tests share: one module a subject. The index is in README.md."""
