"""Data access that all systems share: projects with their keys, and pages of lists."""
