"""The workflows of addresses."""
