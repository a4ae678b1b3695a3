"""The workflows of downloads."""
