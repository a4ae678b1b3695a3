"""Orders, as the rules know them: platforms, windows, marks, configuration."""
