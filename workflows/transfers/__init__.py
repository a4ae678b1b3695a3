"""The workflows of transfers."""
