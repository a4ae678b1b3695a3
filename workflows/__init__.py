"""The plan: deterministic orchestration, one room a system."""
