"""What is checked before a release, beyond what CI checks."""
