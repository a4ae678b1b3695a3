"""The workflows of tasks."""
